//go:build linux

package handover

import (
	"fmt"
	"net"
	"os"
)

// Ready is the state that tells systemd that the start is complete (see sd_notify).
const Ready = "READY=1"

// Notify sends the state of the process to systemd, if systemd has set NOTIFY_SOCKET. The
// variable stays in the environment, so that the next image notifies systemd, too.
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
