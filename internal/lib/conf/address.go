package conf

import (
	"net"
	"strconv"
)

// AddressProblem returns what is wrong with the address of a socket, or "" if nothing is wrong. The
// example is a valid address. AddressProblem does not check that the host belongs to this machine, nor
// that the port is free: only using the address shows that.
func AddressProblem(address, example string) string {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return "must be HOST:PORT, such as " + example
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || port != strconv.FormatUint(n, 10) {
		return "must have a port of 0 to 65535, where 0 lets the kernel choose"
	}
	return ""
}
