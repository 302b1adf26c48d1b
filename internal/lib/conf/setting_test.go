package conf

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// The rendered file shows the help, and what set each key. Defaults are commented out.
func TestRender(t *testing.T) {
	s := New("FRESHET", defaults())
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	s.AddFlags(flags)
	if err := flags.Parse([]string{"--aggregator-width=1m", "--limits-nesting-depth=7"}); err != nil {
		t.Fatal(err)
	}
	variables := func(name string) (string, bool) { return "a b, 'c'", name == "FRESHET_ROLE" }
	file := "data_dir: \"0722\"\nlimits: {body: 8MiB}\nrules:\n" +
		"- {match: a.*, labels: {team: web, \"null\": \"\"}, drop: [x, \"y,z\"]}\n- match: \"line\\nbreak\"\ntenants: {}\n"
	cfg, from, err := s.LoadText("freshet.yaml", []byte(file), variables)
	if err != nil {
		t.Fatal(err)
	}
	got := Render(s.Settings(cfg, from))
	if *update {
		if err := os.WriteFile("testdata/rendered.yaml", []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/rendered.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	none := func(string) (string, bool) { return "", false }
	again, _, err := New("FRESHET", defaults()).LoadText("again.yaml", []byte(got), none)
	if err != nil || !reflect.DeepEqual(again, cfg) {
		t.Errorf("the rendered file loads as %+v, %v\nwant                       %+v", again, err, cfg)
	}
}

func TestSettings(t *testing.T) {
	s := New("FRESHET", defaults())
	none := func(string) (string, bool) { return "", false }
	cfg, from, err := s.LoadText("freshet.yaml", []byte("limits: {series: 5}\nrules: [{match: a}]"), none)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]Setting{}
	for _, one := range s.Settings(cfg, from) {
		one.node, one.preset = nil, nil
		got[one.Key] = one
	}
	for _, want := range []Setting{
		{Key: "limits.series", Value: 5, Default: 0, SetBy: "freshet.yaml:1", Help: "most series"},
		{Key: "aggregator.width", Value: "10s", Default: "10s", SetBy: "default", Restart: true, Help: "length of a tile"},
		{Key: "rules", Value: []any{map[string]any{"match": "a"}}, Default: []any{}, SetBy: "freshet.yaml:2",
			Help: "rules; the first that matches decides"},
	} {
		if !reflect.DeepEqual(got[want.Key], want) {
			t.Errorf("got  %#v\nwant %#v", got[want.Key], want)
		}
	}
}

func TestKeys(t *testing.T) {
	var got []string
	for _, k := range New("FRESHET", defaults()).Keys() {
		got = append(got, strings.TrimSpace(strings.Join([]string{k.Path, k.Type, k.Default, k.Flag, k.Env}, " ")))
	}
	for _, want := range []string{
		"data_dir string ./data data-dir FRESHET_DATA_DIR",
		"limits.nesting.depth int 0 limits-nesting-depth FRESHET_LIMITS_NESTING_DEPTH",
		"rules list []", "rules[].match string", "rules[].labels map", "tenants map {}", "tenants.NAME.series int",
	} {
		found := false
		for _, line := range got {
			found = found || line == want
		}
		if !found {
			t.Errorf("no %q in\n%s", want, strings.Join(got, "\n"))
		}
	}
}

func TestEnvTypos(t *testing.T) {
	got := New("FRESHET", defaults()).Renamed("bounds", "limits").EnvTypos([]string{
		"FRESHET_DATADIR=/d", "FRESHET_LIMITS_SERIES=1", "FRESHET_CONFIG=c", // a misspelt key, a key, a known name
		"FRESHET_BOUNDS_SERIES=1", // a former name, which Load reports
		"FRESHET_PORT=tcp://10.0.0.1:7125", "FRESHET_SERVICE_HOST=h", "PATH=/bin",
	}, "FRESHET_CONFIG")
	want := []string{"FRESHET_DATADIR: is not the variable of any key, so it has no effect; " +
		"did you mean FRESHET_DATA_DIR?"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
