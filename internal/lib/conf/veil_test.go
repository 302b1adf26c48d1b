package conf

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// vault is a configuration with secrets.
type vault struct {
	Endpoint string `yaml:"endpoint" help:"a URL" show:"url"`
	Rooms    []room `yaml:"rooms" help:"those with keys"`
	Level    string `yaml:"level" help:"no secret"`
	Of       inner  `yaml:"of"`
}

type inner struct {
	Key string `yaml:"key" help:"a key" show:"secret"`
}

type room struct {
	URL     string            `yaml:"url" help:"where" show:"url"`
	Headers map[string]string `yaml:"headers" help:"what it is sent" show:"secret"`
	Size    int               `yaml:"size" help:"no secret"`
}

// Validate returns a problem whose text would show the value.
func (r room) Validate() []Problem {
	if strings.Contains(r.URL, "broken") {
		return []Problem{{Key: "url", Text: "is broken"}, {Key: "headers.Auth", Text: "is broken"}}
	}
	return nil
}

// secret is the text in all values that only the owner may see.
const secret = "s3cret"

const vaultText = `endpoint: https://ann:s3cret-1@traces.example/v1?key=s3cret-2&s3cret-8#s3cret-3
of: {key: s3cret-4}
rooms:
- {url: "https://h.example/push?token=s3cret-5", headers: {Auth: s3cret-6}, size: 1}
`

// Only the owner sees secrets. Others see a placeholder where a secret is.
func TestSecretsAreNotShown(t *testing.T) {
	t.Parallel()
	schema := New("T", vault{})
	none := func(string) (string, bool) { return "", false }
	load := func(text string) vault {
		t.Helper()
		c, _, err := schema.LoadText("f", []byte(text), none)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	old := load(vaultText)
	from := Origins{"endpoint": "f:1", "rooms": "f:3", "of.key": "f:2"}
	shown := Render(schema.Shown(old, from))
	for _, want := range []string{"endpoint: https://<secret>@traces.example/v1?key=<secret>&<secret>\n",
		"url: https://h.example/push?token=<secret>\n", "Auth: <secret>\n", "key: <secret>\n", "size: 1\n"} {
		if !strings.Contains(shown, want) {
			t.Errorf("no %q in\n%s", want, shown)
		}
	}
	whole := Render(schema.Settings(old, from))
	if strings.Contains(shown, secret) || strings.Count(whole, secret) != 7 {
		t.Errorf("others see\n%swant no secret; the owner sees\n%s", shown, whole)
	}
	if again := load(whole); fmt.Sprint(again) != fmt.Sprint(old) {
		t.Errorf("the owner's view loads as %+v, want %+v", again, old)
	}

	// Diff reports a change even if only a secret changed.
	for i := 1; i <= 6; i++ {
		one := fmt.Sprintf("%s-%d", secret, i)
		changes := Diff(old, load(strings.Replace(vaultText, one, "an0ther", 1)))
		if len(changes) != 1 || strings.Contains(fmt.Sprint(changes), secret) ||
			strings.Contains(fmt.Sprint(changes), "an0ther") {
			t.Errorf("%s is changed: %v", one, changes)
		}
	}
	for _, changes := range [][]Change{Diff(old, vault{}), Diff(vault{}, old)} {
		if len(changes) != 3 || strings.Contains(fmt.Sprint(changes), secret) {
			t.Errorf("after secrets are removed or added, Diff reports %v, want 3 changes without the secret", changes)
		}
	}

	// Problems hide the secret, too, and a file that contains the placeholder is refused.
	for text, want := range map[string]string{
		strings.Replace(vaultText, "h.example", "broken.example",
			1): "f:4: rooms[0].url = https://broken.example/push?token=<secret>: is broken",
		"rooms:\n- {ulr: 's3cret://a'}\n":        "f:2: rooms[0].ulr: is not a key; did you mean rooms[0].url?",
		"of: {kye: s3cret}\n":                    "f:1: of.kye: is not a key; did you mean of.key?",
		"endpoint: https://<secret>@a.example\n": "f:1: endpoint = <secret>: is the placeholder shown for a secret",
		"rooms: [{headers: {Auth: <secret>}}]\n": "f:1: rooms[0].headers.Auth = <secret>: " +
			"is the placeholder shown for a secret",
	} {
		_, _, err := schema.LoadText("f", []byte(text), none)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), secret) {
			t.Errorf("%s:\n%v\nwant %s", text, err, want)
		}
	}

	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	schema.AddFlags(flags)
	if err := flags.Parse([]string{"--endpoint", "https://a.example?key=s3cret", "--of-key", "s3cret"}); err != nil {
		t.Fatal(err)
	}
	flags.VisitAll(func(f *pflag.Flag) {
		if strings.Contains(f.Value.String(), secret) {
			t.Errorf("--%s is shown as %s", f.Name, f.Value)
		}
	})
	if c, _, err := schema.LoadText("f", nil, none); err != nil || c.Of.Key != secret {
		t.Errorf("the flags give %+v, error %v", c, err)
	}
}

func TestShowURL(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"http://a.example:8080/p%2Fq": "http://a.example:8080/p%2Fq",
		"https://t0ken@a.example":     "https://<secret>@a.example",
		"https://a:b@a.example/?x&y=": "https://<secret>@a.example/?<secret>&y=<secret>",
		"a.example:7125":              "a.example:7125",
		"ann:t0ken@a.example:7125":    "<secret>@a.example:7125",
		"http://a b":                  "http://a b",
		"http://ann:t0ken@a b":        "<secret>",
		"http://a b?key=t0ken":        "<secret>",
		"":                            "",
	} {
		if got := ShowURL(text); got != want {
			t.Errorf("%q is shown as %q, want %q", text, got, want)
		}
	}
}
