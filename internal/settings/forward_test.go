package settings

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/lib/conf"
)

func TestForward(t *testing.T) {
	good := "{name: mimir, url: 'https://mimir:8080/api/v1/push'"
	cases := []struct {
		name, backends string
		want           []string // problems without their place
	}{
		{"defaults", good + "}", nil},
		{"everything", good + ", protocol: '2.0', headers: {X-Scope-OrgID: '{tenant}'}, username: u, password_file: /p, " +
			"tls: {ca_file: /ca, cert_file: /c, key_file: /k, server_name: m}, queue: 2GiB, " +
			"fsync: true, connections: 4, timeout: 10s, retry_min: 1s, retry_max: 1m}", nil},
		{"two of a name", good + "}, " + good + "}",
			[]string{"backends[1].name = mimir: is also the name of backends[0]; give each backend its own name"}},
		{"no name, no url", "{protocol: auto}", []string{
			"backends[0].name: is not a name; use 1 to 64 letters, digits, dashes and underscores",
			"backends[0].url: is not a URL; write it like https://mimir.example:8080/api/v1/push"}},
		{"a name that is a path", "{name: ../x, url: 'http://x'}",
			[]string{"backends[0].name = ../x: is not a name; use 1 to 64 letters, digits, dashes and underscores"}},
		{"a password in the url", "{name: a, url: 'http://u:p@x'}",
			[]string{"backends[0].url = http://<secret>@x: has a user in it, which would be logged; " +
				"give username and password_file"}},
		{"protocol", good + ", protocol: '3.0'}", []string{"backends[0].protocol = 3.0: must be auto, 2.0 or 1.0"}},
		{"reserved header", good + ", headers: {content-type: x}}",
			[]string{"backends[0].headers.content-type = <secret>: is set by Freshet; " +
				"remove it, and see username and bearer_token_file for authentication"}},
		{"header injection", good + `, headers: {X-A: "a\r\nX-B: b"}}`,
			[]string{`backends[0].headers.X-A = <secret>: is not a header; ` +
				`names have letters, digits and dashes, and values are one line`}},
		{"half a pair", good + ", username: u, tls: {key_file: k}}", []string{
			"backends[0].username = u: set both username and password_file, or neither",
			"backends[0].tls.cert_file: set both cert_file and key_file, or neither"}},
		{"two ways", good + ", username: u, password_file: p, bearer_token_file: b}",
			[]string{"backends[0].bearer_token_file = b: cannot be combined with username; keep one of the two"}},
		{"small queue", good + ", queue: 7MiB, connections: 8}",
			[]string{"backends[0].queue = 7MiB: must be at least 8MiB, 1MiB for each connection"}},
		{"connections", good + ", connections: 65}", []string{"backends[0].connections = 65: must be 1 to 64"}},
		{"times", good + ", timeout: 1us, retry_min: 10s}", []string{
			"backends[0].timeout = 1us: must be at least 1ms",
			"backends[0].retry_max: is less than retry_min (10s); set it to that or more"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			text, noEnv := []byte("backends: ["+c.backends+"]\n"), func(string) (string, bool) { return "", false }
			_, _, err := conf.New("TEST", Forward{}).LoadText("f", text, noEnv)
			var got []string
			if err != nil {
				for line := range strings.Lines(err.Error()) {
					_, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
					got = append(got, text)
				}
			}
			if slices.Sort(got); !slices.Equal(got, slices.Sorted(slices.Values(c.want))) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

func TestDefaultsOfABackend(t *testing.T) {
	b := Backend{Name: "a", URL: "http://a"}.WithDefaults()
	if b.Protocol != ProtocolAuto || b.Queue != 1<<30 || b.Connections != 1 || b.Timeout != 30*time.Second ||
		b.RetryMin != 30*time.Millisecond || b.RetryMax != 5*time.Second {
		t.Errorf("got %+v", b)
	}
}
