package apiclient

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/freshet-io/freshet/internal/answer"
)

// bySocket is the prefix of the address of an operator.sock.
const bySocket = "unix:"

// found returns s. If s has no address, it fills in the address of this machine's server.
func (s Server) found() Server {
	if s.Address != "" {
		return s
	}
	s.Address = DefaultServer
	if path := operatorSocketHere(); path != "" {
		s.Address = bySocket + path
	}
	return s
}

// operatorSocketHere returns the socket of a server that runs on this machine with a usual data
// directory. It returns an empty string if no server answers or this user has no access. A server
// in the working directory could belong to another user, who would get the command's token. So a
// data directory there, and its socket, must belong to this user or root.
func operatorSocketHere() string {
	named, here := os.Getenv("FRESHET_DATA_DIR"), answer.DefaultDataDir
	for _, dir := range []string{named, here, answer.PackagedDataDir} {
		if dir == "" {
			continue
		}
		for _, path := range []string{filepath.Join(dir, answer.OperatorSocket), listening(dir).Operator} {
			if path == "" || dir == here && dir != named && !trusted(os.Getuid(), dir, path) {
				continue
			}
			if conn, err := net.Dial("unix", path); err == nil { // fails if the path is too long
				_ = conn.Close()
				return path
			}
		}
	}
	return ""
}

// listening returns the addresses that the server of a data directory has written to a file,
// or none if the file cannot be read.
func listening(dir string) (l answer.Listening) {
	if text, err := os.ReadFile(filepath.Join(dir, answer.ListeningFile)); err == nil {
		_ = json.Unmarshal(text, &l)
	}
	return l
}

// trusted is true if each of these files belongs to this user or to root.
func trusted(user int, paths ...string) bool {
	return !slices.ContainsFunc(paths, func(path string) bool {
		info, err := os.Stat(path)
		if err != nil {
			return true
		}
		owner, known := info.Sys().(*syscall.Stat_t)
		return !known || owner.Uid != 0 && int(owner.Uid) != user
	})
}

// OverSocket returns a client whose requests all go to a Unix socket.
func OverSocket(path string) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		},
		DisableKeepAlives:     true, // each request has its own client and connection
		ExpectContinueTimeout: time.Second,
	}}
}
