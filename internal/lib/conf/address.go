package conf

import (
	"net"
	"strconv"
)

// AddressProblem says what is wrong with the address of a socket, "" if nothing
// is. Only using it can tell whether the host is this machine's and the port free.
func AddressProblem(address string) string {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return "must be HOST:PORT, such as 127.0.0.1:8125 or [::1]:8125"
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || port != strconv.FormatUint(n, 10) {
		return "must have a port of 0 to 65535, where 0 lets the kernel choose"
	}
	return ""
}
