package server

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/freshet-io/freshet/internal/adapter/files"
	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/role/collector"
	"github.com/freshet-io/freshet/internal/settings"
)

// A tenant must not see the socket of another tenant, or it would send its samples there.
func TestATenantIsToldOfItsOwnSockets(t *testing.T) {
	var servers httpServers
	for _, name := range []string{"a", "b"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		servers = append(servers, &httpServer{listener: l, tenant: name})
	}
	sockets := func() []collector.Listening {
		return []collector.Listening{
			{Network: "udp", Address: "127.0.0.1:1", Tenant: "a"},
			{Network: "unixgram", Address: "/run/a", Tenant: "a"},
			{Network: "udp", Address: "127.0.0.1:2", Tenant: "b"},
		}
	}
	for name, want := range map[string]answer.Listening{
		"a": {PID: os.Getpid(), HTTP: servers[0].addr(), OTLPGRPC: "127.0.0.1:3", DogStatsDUDP: "127.0.0.1:1",
			DogStatsDUnixgram: "/run/a"},
		"b": {PID: os.Getpid(), HTTP: servers[1].addr(), DogStatsDUDP: "127.0.0.1:2"},
		"c": {PID: os.Getpid()},
	} {
		if got := listeningOf(name, servers, "127.0.0.1:3", sockets()); got != want {
			t.Errorf("%s sees %+v, want %+v", name, got, want)
		}
	}
}

// A program in any working directory finds each socket through listening.json. Even if the data
// directory is configured as ./data, relative to the server's working directory, the paths are
// absolute.
func TestListeningHasAbsolutePaths(t *testing.T) {
	t.Chdir(t.TempDir())
	s := running(t, `
data_dir: data
http: {listen: "127.0.0.1:0"}
dogstatsd: {udp: "", unixgram: data/gram.sock, unix: ./data/stream.sock}
`)
	if err := s.writeListening(); err != nil {
		t.Fatal(err)
	}
	var told answer.Listening
	if err := files.ReadJSON(s.path(answer.ListeningFile), &told); err != nil {
		t.Fatal(err)
	}
	var asked struct{ Data answer.Process }
	_, text := s.answer(t, http.MethodGet, "/api/v1/status/process", "", "", false)
	if json.Unmarshal([]byte(text), &asked) != nil {
		t.Fatal(text)
	}
	for path, network := range map[string]string{
		told.DogStatsDUnixgram: "unixgram", told.DogStatsDUnix: "unix", told.Operator: "unix",
	} {
		conn, err := net.Dial(network, path)
		if err != nil || !filepath.IsAbs(path) {
			t.Errorf("listening.json: path %q, error %v", path, err)
			continue
		}
		_ = conn.Close()
	}
	if l := asked.Data.Listening; l.DogStatsDUnixgram != told.DogStatsDUnixgram || l.DogStatsDUnix != told.DogStatsDUnix {
		t.Errorf("the API has %+v, but listening.json has %+v", l, told)
	}
}

// The start and a reload once wrote listening.json at the same time, through one temporary file.
// The first rename moved that file, so the second rename failed, and the server ended. Before the
// announcement a reload writes nothing, since the file tells programs that the server is ready.
func TestListeningIsToldOnceOpen(t *testing.T) {
	s := &server{config: settings.Config{DataDir: t.TempDir()}}
	write := func() error { return s.replace(answer.ListeningFile, []byte("{}\n")) }
	if err := s.listeningTold.again(write); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(s.path(answer.ListeningFile)); !os.IsNotExist(err) {
		t.Fatalf("a reload announced the addresses of a server that is still opening: %v", err)
	}
	var all errgroup.Group
	for i := range 4 {
		all.Go(func() error {
			for range 500 {
				tell := s.listeningTold.again
				if i == 0 {
					tell = s.listeningTold.first
				}
				if err := tell(write); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		t.Error(err)
	}
}
