//go:build linux

package handover

import (
	"fmt"
	"net"
	"os"
)

// Ready is what systemd waits for at a start (sd_notify).
const Ready = "READY=1"

// Notify tells systemd the state of the process, if it wants to know. systemd
// leaves NOTIFY_SOCKET in the environment, so that the next image tells it too.
func Notify(state string) error {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err == nil {
		_, err = c.Write([]byte(state))
		_ = c.Close()
	}
	if err != nil {
		return fmt.Errorf("tell systemd %s: %w", state, err)
	}
	return nil
}
