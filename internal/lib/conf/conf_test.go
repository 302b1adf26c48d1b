package conf

import (
	"errors"
	"flag"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// config has one key of each shape.
type config struct {
	DataDir    string           `yaml:"data_dir" help:"directory of all data" reload:"restart"`
	Roles      []string         `yaml:"role" help:"roles to run"`
	Aggregator aggregator       `yaml:"aggregator" reload:"restart"`
	Limits     limits           `yaml:"limits"`
	Rules      []rule           `yaml:"rules" help:"rules; the first that matches decides"`
	Tenants    map[string]quota `yaml:"tenants" help:"limits by tenant"`
	Skipped    chan int         `yaml:"-"`
}

type aggregator struct {
	Width    time.Duration   `yaml:"width" help:"length of a tile"`
	Lateness time.Duration   `yaml:"lateness" help:"how long a tile stays open after its end"`
	Widths   []time.Duration `yaml:"widths" help:"all widths"`
}

func (a *aggregator) Validate() []Problem {
	if a.Lateness > a.Width {
		return []Problem{{
			Key:  "lateness",
			Text: "exceeds aggregator.width (" + a.Width.String() + "); set it to " + a.Width.String() + " or less",
		}}
	}
	return nil
}

type limits struct {
	Body    Bytes   `yaml:"body" help:"largest body"`
	Series  int     `yaml:"series" help:"most series"`
	Shards  uint16  `yaml:"shards" help:"number of shards"`
	Ratio   float64 `yaml:"ratio" help:"share of memory"`
	Strict  bool    `yaml:"strict" help:"refuse the unknown"`
	Nesting struct {
		Depth int8 `yaml:"depth" help:"deepest query"`
	} `yaml:"nesting"`
}

type rule struct {
	Match  string            `yaml:"match" help:"which names it is for"`
	Labels map[string]string `yaml:"labels" help:"labels to set"`
	Drop   []string          `yaml:"drop" help:"labels to remove"`
}

func (r *rule) Validate() []Problem {
	if r.Match == "" {
		return []Problem{{Key: "match", Text: `is missing; write the names it is for: match: "app.*"`}}
	}
	return nil
}

type quota struct {
	Series int `yaml:"series" help:"most series; 0 is no limit"`
}

func (q *quota) Validate() []Problem {
	if q.Series < 0 {
		return []Problem{{Key: "series", Text: "is negative; set it to 0 for no limit"}}
	}
	return nil
}

func defaults() config {
	return config{
		DataDir:    "./data",
		Roles:      []string{"all"},
		Aggregator: aggregator{Width: 10 * time.Second, Lateness: 2 * time.Second},
		Limits:     limits{Body: 4 << 20, Shards: 1024},
	}
}

// load reads the file under an environment ("NAME=value") and a command line.
func load(t *testing.T, file string, env, args []string) (config, error) {
	t.Helper()
	s := New("FRESHET", defaults())
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	s.AddFlags(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	got, _, err := s.LoadText("freshet.yaml", []byte(file), func(name string) (string, bool) {
		for _, e := range env {
			if n, value, _ := strings.Cut(e, "="); n == name {
				return value, true
			}
		}
		return "", false
	})
	return got, err
}

func TestLoad(t *testing.T) {
	every := config{
		DataDir: "/var/lib/freshet",
		Roles:   []string{"collector", "aggregator"},
		Aggregator: aggregator{
			Width: time.Minute, Lateness: 1500 * time.Millisecond, Widths: []time.Duration{10 * time.Second, 48 * time.Hour},
		},
		Limits: limits{Body: 1 << 30, Series: -5, Shards: 16, Ratio: 0.25, Strict: true},
	}
	every.Limits.Nesting.Depth = 7
	with := func(change func(c *config)) config {
		c := defaults()
		change(&c)
		return c
	}
	for _, tt := range []struct {
		name string
		file string
		env  []string
		args []string
		want config
	}{
		{"an empty file leaves the defaults", "", nil, nil, defaults()},
		{"so does a file of comments", "# nothing yet\n", nil, nil, defaults()},
		{"so does a section whose keys are all commented out",
			"aggregator:\n  # width: 10s\nlimits: ~\nrules:\n", nil, nil, defaults()},
		{
			"every single-valued key in the file", `
data_dir: /var/lib/freshet
role: [collector, aggregator]
aggregator: {width: 1m, lateness: 1.5s, widths: [10s, 2d]}
limits:
  body: 1GiB
  series: -5
  shards: 0x10
  ratio: 0.25
  strict: true
  nesting: {depth: 7}
`, nil, nil, every,
		},
		{
			"every single-valued key in the environment", "", []string{
				"FRESHET_DATA_DIR=/var/lib/freshet", "FRESHET_ROLE=collector, aggregator", "FRESHET_AGGREGATOR_WIDTH=1m",
				"FRESHET_AGGREGATOR_LATENESS=1.5s", "FRESHET_AGGREGATOR_WIDTHS=10s,2d", "FRESHET_LIMITS_BODY=1GiB",
				"FRESHET_LIMITS_SERIES=-5",
				"FRESHET_LIMITS_SHARDS=16", "FRESHET_LIMITS_RATIO=0.25", "FRESHET_LIMITS_STRICT=true",
				"FRESHET_LIMITS_NESTING_DEPTH=7",
			}, nil, every,
		},
		{
			"every single-valued key by flags; flags of a list add up", "", nil, []string{
				"--data-dir=/var/lib/freshet", "--role", "collector", "--role", "aggregator", "--aggregator-width=1m",
				"--aggregator-lateness=1.5s", "--aggregator-widths=10s,2d", "--limits-body=1GiB", "--limits-series=-5",
				"--limits-shards=16", "--limits-ratio=0.25", "--limits-strict", "--limits-nesting-depth=7",
			}, every,
		},
		{
			"the environment hides the file, a flag hides both",
			"data_dir: file\nrole: [file]\nlimits: {series: 1}",
			[]string{"FRESHET_DATA_DIR=env", "FRESHET_ROLE=env"}, []string{"--data-dir=early", "--data-dir=flag"},
			with(func(c *config) { c.DataDir = "flag"; c.Roles = []string{"env"}; c.Limits.Series = 1 }),
		},
		{
			"an empty value is a value: it turns an input off",
			`role: []`, []string{"FRESHET_DATA_DIR="}, nil,
			with(func(c *config) { c.DataDir = ""; c.Roles = []string{} }),
		},
		{
			"an empty list from a variable",
			"", []string{"FRESHET_ROLE="}, nil,
			with(func(c *config) { c.Roles = []string{} }),
		},
		{
			"Kubernetes invents variables for a service called freshet",
			"", []string{"FRESHET_PORT=tcp://10.0.0.1:7125", "FRESHET_SERVICE_HOST=10.0.0.1"}, nil,
			defaults(),
		},
		{
			"lists and maps of sections, with aliases", `
rules:
  - &app {match: app.*, labels: {team: web, tier: "1"}, drop: [host]}
  - *app
tenants:
  acme: {series: 10}
  default:
`, nil, nil,
			with(func(c *config) {
				r := rule{Match: "app.*", Labels: map[string]string{"team": "web", "tier": "1"}, Drop: []string{"host"}}
				c.Rules = []rule{r, r}
				c.Tenants = map[string]quota{"acme": {Series: 10}, "default": {}}
			}),
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := load(t, tt.file, tt.env, tt.args)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

func TestProblems(t *testing.T) {
	for _, tt := range []struct {
		name string
		file string
		env  []string
		args []string
		want []string
	}{
		{
			"all at once: flags and variables first, then the file from top to bottom",
			"data_dri: /data\naggregator:\n  width: soon\n  lateness: 2s\nlimits: {shards: 70000, series: many}\n",
			[]string{"FRESHET_LIMITS_RATIO=NaN"}, []string{"--limits-body=4 apples", "--limits-strict=maybe"},
			[]string{
				"--limits-body = 4 apples: is not a size; write a whole number of B, KiB, MiB or GiB, like 4MiB",
				"FRESHET_LIMITS_RATIO = NaN: is not a finite number",
				"--limits-strict = maybe: is neither true nor false",
				"freshet.yaml:1: data_dri = /data: is not a key; did you mean data_dir?",
				"freshet.yaml:3: aggregator.width = soon: is not a duration; write it like 500ms, 10s, 1h30m or 2d",
				"freshet.yaml:5: limits.shards = 70000: is out of range; set it from 0 to 65535",
				"freshet.yaml:5: limits.series = many: is not a whole number",
			},
		},
		{
			"a problem found by a section names the line of the value",
			"aggregator:\n  width: 10s\n  lateness: 30s\n", nil, nil,
			[]string{"freshet.yaml:3: aggregator.lateness = 30s: exceeds aggregator.width (10s); set it to 10s or less"},
		},
		{
			"or the flag that hid the line",
			"aggregator:\n  lateness: 3s\n", nil, []string{"--aggregator-lateness=30s"},
			[]string{"--aggregator-lateness = 30s: exceeds aggregator.width (10s); set it to 10s or less"},
		},
		{
			"or the variable",
			"", []string{"FRESHET_AGGREGATOR_LATENESS=30s"}, nil,
			[]string{"FRESHET_AGGREGATOR_LATENESS = 30s: exceeds aggregator.width (10s); set it to 10s or less"},
		},
		{
			"or that nobody set it",
			"aggregator: {width: 1s}", nil, nil,
			[]string{"aggregator.lateness = 2s (default): exceeds aggregator.width (1s); set it to 1s or less"},
		},
		{
			"a value that cannot be read is not validated too, since the default stands in for it",
			"aggregator: {width: 1s, lateness: 5}", nil, nil,
			[]string{"freshet.yaml:1: aggregator.lateness = 5: is not a duration; write it like 500ms, 10s, 1h30m or 2d"},
		},
		{
			"a key given twice, with the line of the first",
			"data_dir: a\nlimits:\n  series: 1\ndata_dir: b\nlimits: {}\n", nil, nil,
			[]string{
				"freshet.yaml:4: data_dir: is given a second time; keep this one or the one in line 1",
				"freshet.yaml:5: limits: is given a second time; keep this one or the one in line 2",
			},
		},
		{
			"a key of another section",
			"lateness: 5s\n", nil, nil,
			[]string{"freshet.yaml:1: lateness = 5s: is not a key; did you mean aggregator.lateness?"},
		},
		{
			"a key of an element outside of any element",
			"limits: {macth: 1}\naggregator: {match: app.*}\n", nil, nil,
			[]string{
				"freshet.yaml:1: limits.macth = 1: is not a key; there are body, series, shards, ratio, strict, nesting",
				"freshet.yaml:2: aggregator.match = app.*: is not a key; did you mean rules[].match?",
			},
		},
		{
			"the name of a flag or variable, or nearly so",
			"aggregator-width: 1m\nFRESHET_LIMITS_BODY: 1\n--limits-seris: 1\nlimits.nesting.depth: 1\n", nil, nil,
			[]string{
				"freshet.yaml:1: aggregator-width = 1m: is not a key; did you mean aggregator.width? In a file it stands " +
					"below its section",
				"freshet.yaml:2: FRESHET_LIMITS_BODY = 1: is not a key; did you mean limits.body? In a file it stands " +
					"below its section",
				"freshet.yaml:3: --limits-seris = 1: is not a key; did you mean limits.series? In a file it stands " +
					"below its section",
				"freshet.yaml:4: limits.nesting.depth = 1: is not a key; did you mean limits.nesting.depth? In a file it stands " +
					"below its section",
			},
		},
		{
			"bytes that no file can hold", "", []string{"FRESHET_DATA_DIR=/\xff"}, nil,
			[]string{"FRESHET_DATA_DIR = \"/\\xff\": is not UTF-8; write it in UTF-8"},
		},
		{
			"an unknown key like no other gets the list of keys",
			"aggregator: {frobnicate: 1}\n", nil, nil,
			[]string{"freshet.yaml:1: aggregator.frobnicate = 1: is not a key; there are width, lateness, widths"},
		},
		{
			"a value where a section or list belongs, and the reverse",
			"aggregator: 10s\nrole: all\ndata_dir: [a]\nlimits: {series: {a: 1}}\ntenants: [acme]\n", nil, nil,
			[]string{
				"freshet.yaml:1: aggregator: is one value; write its keys below it, indented",
				"freshet.yaml:2: role: is one value; write a list: [a, b]",
				"freshet.yaml:3: data_dir: is a list; write one value",
				"freshet.yaml:4: limits.series: is a section with keys; write one value",
				"freshet.yaml:5: tenants: is a list; write its keys below it, indented",
			},
		},
		{
			"elements of lists and maps have paths and lines; a missing key has the line of its element",
			"rules:\n  - match: a\n  - drop:\n      - x\n    labels: {a: [b]}\n    macth: c\ntenants:\n  " +
				"acme:\n    series: -1\n", nil, nil,
			[]string{
				`freshet.yaml:3: rules[1].match: is missing; write the names it is for: match: "app.*"`,
				"freshet.yaml:5: rules[1].labels.a: is a list; write one value",
				"freshet.yaml:6: rules[1].macth = c: is not a key; did you mean rules[1].match?",
				"freshet.yaml:9: tenants.acme.series = -1: is negative; set it to 0 for no limit",
			},
		},
		{
			"one bad element of a list",
			"", nil, []string{"--aggregator-widths=10s,soon"},
			[]string{`--aggregator-widths = 10s,soon: "soon" is not a duration; write it like 500ms, 10s, 1h30m or 2d`},
		},
		{
			"a YAML error has a line too",
			"data_dir: a\nlimits: [\n", nil, nil,
			[]string{"freshet.yaml:2: is not YAML: did not find expected node content"},
		},
		{
			"a file of one word", "hello\n", nil, nil,
			[]string{"freshet.yaml:1: is one value; write keys and values, one a line: data_dir: ./data"},
		},
		{
			"a second document would be lost", "data_dir: a\n---\ndata_dir: b\n", nil, nil,
			[]string{"freshet.yaml:2: a second document begins here; keep one and remove the line with ---"},
		},
		{
			"merge keys are refused, not ignored", "limits:\n  <<: {series: 1}\n", nil, nil,
			[]string{"freshet.yaml:2: limits.<<: is not a key; there are body, series, shards, ratio, strict, nesting"},
		},
		{
			"a long value does not hide the problem", "limits: {series: " + strings.Repeat("x", 500) + "}\n", nil, nil,
			[]string{"freshet.yaml:1: limits.series = " + strings.Repeat("x", 77) + "...: is not a whole number"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := load(t, tt.file, tt.env, tt.args)
			var problems Problems
			if !errors.As(err, &problems) {
				t.Fatalf("got the error %v, want Problems", err)
			}
			if want := strings.Join(tt.want, "\n"); err.Error() != want {
				t.Errorf("got\n%v\nwant\n%v", err, want)
			}
			if !reflect.DeepEqual(got, defaults()) {
				t.Errorf("a broken configuration was returned: %+v", got)
			}
		})
	}
}

// A file is loaded again while the process runs: nothing of the first load may remain, and the
// flags still hold.
func TestLoadAgain(t *testing.T) {
	s := New("FRESHET", defaults())
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	s.AddFlags(flags)
	if err := flags.Parse([]string{"--role=querier"}); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "freshet.yaml")
	none := func(string) (string, bool) { return "", false }
	for _, tt := range []struct{ text, dataDir string }{{"data_dir: a\nrole: [x]\n", "a"}, {"", "./data"}} {
		if err := os.WriteFile(file, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := s.Load(file, none)
		if err != nil {
			t.Fatal(err)
		}
		if got.DataDir != tt.dataDir || !reflect.DeepEqual(got.Roles, []string{"querier"}) {
			t.Errorf("after %q: got data_dir %q and role %q, want %q and querier",
				tt.text, got.DataDir, got.Roles, tt.dataDir)
		}
	}
	if _, err := s.Load("", none); err != nil {
		t.Errorf("without a file: %v", err)
	}
	_, err := s.Load("missing.yaml", none)
	if want := "missing.yaml: read the configuration: no such file or directory; name another file, " +
		"or none to run on defaults"; err == nil || err.Error() != want {
		t.Errorf("loading a named file that does not exist: got %v, want %s", err, want)
	}
}

var update = flag.Bool("update", false, "rewrite testdata")

// The flags' help is the first reference that users read, so its text is fixed here.
func TestFlagHelp(t *testing.T) {
	s := New("FRESHET", defaults())
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	flags.SortFlags = false
	s.AddFlags(flags)
	got := flags.FlagUsages()
	if *update {
		if err := os.WriteFile("testdata/help.txt", []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/help.txt")
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestMistakesInTheProgram(t *testing.T) {
	for _, tt := range []struct {
		name string
		make func()
	}{
		{"a channel is not a setting", func() {
			New("X", struct {
				C chan int `yaml:"c" help:"h"`
			}{})
		}},
		{"nor is a map of them", func() {
			New("X", struct {
				C map[string]chan int `yaml:"c" help:"h"`
			}{})
		}},
		{"a key without help", func() {
			New("X", struct {
				C string `yaml:"c"`
			}{})
		}},
		{"an element's key without help", func() {
			New("X", struct {
				C []struct {
					D string `yaml:"d"`
				} `yaml:"c" help:"h"`
			}{})
		}},
		{"a misspelt restart", func() {
			New("X", struct {
				C string `yaml:"c" help:"h" reload:"restrat"`
			}{})
		}},
		{"a type that can be read but not written", func() {
			New("X", struct {
				C readOnly `yaml:"c" help:"h"`
			}{})
		}},
		{"a field without a name", func() { New("X", struct{ Name string }{}) }},
		{"two keys with one flag", func() {
			New("X", struct {
				A struct {
					B string `yaml:"b" help:"h"`
				} `yaml:"a"`
				C string `yaml:"a_b" help:"h"`
			}{})
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			defer func() {
				if text, _ := recover().(string); !strings.HasPrefix(text, "BUG: conf: ") {
					t.Errorf("recovered %q, want it to begin with BUG: conf:", text)
				}
			}()
			tt.make()
		})
	}
}

// readOnly can be read but not written.
type readOnly struct{}

func (*readOnly) UnmarshalText([]byte) error { return nil }

func TestDuration(t *testing.T) {
	for _, tt := range []struct {
		text string
		want time.Duration
		back string // the value as the help shows it
	}{
		{"0", 0, "0s"},
		{"10s", 10 * time.Second, "10s"},
		{"1.5s", 1500 * time.Millisecond, "1.5s"},
		{"250us", 250 * time.Microsecond, "250µs"},
		{"90m", 90 * time.Minute, "1h30m"},
		{"10m", 10 * time.Minute, "10m"},
		{"100h", 100 * time.Hour, "4d4h"},
		{"40d", 40 * day, "40d"},
		{"2w1d", 15 * day, "15d"},
		{"1y2w3d4h5m6s7ms", 382*day + 4*time.Hour + 5*time.Minute + 6*time.Second + 7*time.Millisecond, "382d4h5m6.007s"},
		{"106751d23h", 106751*day + 23*time.Hour, "106751d23h"},
	} {
		got, err := ParseDuration(tt.text)
		if err != nil || got != tt.want {
			t.Errorf("%s: got %v, %v; want %v", tt.text, got, err, tt.want)
		}
		if back := formatDuration(got); back != tt.back {
			t.Errorf("%s is written back as %s, want %s", tt.text, back, tt.back)
		}
	}
	for _, text := range []string{"", "5", "d", "-2d", "-5s", "2d-1h", "1h2d", "2d 1h", "1.5d", "106752d", "106751d24h",
		"4294967296y", "day"} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("%q was read as %v", text, got)
		}
	}
}

// An optional number is read and written like any number.
func TestOptionalInt(t *testing.T) {
	for text, want := range map[string]OptionalInt{"": {}, "0": Some(0), "17": Some(17)} {
		var got OptionalInt
		if err := got.UnmarshalText([]byte(text)); err != nil || got != want {
			t.Errorf("%q: got %v, %v", text, got, err)
		}
		if back, err := got.MarshalText(); err != nil || string(back) != text {
			t.Errorf("%q is written back as %q, error %v", text, back, err)
		}
	}
	for _, text := range []string{"-1", "1.5", "many"} {
		if err := new(OptionalInt).UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q was read", text)
		}
	}
	if Some(0).Or(7) != 0 || (OptionalInt{}).Or(7) != 7 {
		t.Error("OptionalInt.Or takes the number 0 for missing, or ignores its argument")
	}
	type tenant struct {
		Series OptionalInt `yaml:"series" help:"most series"`
		Names  OptionalInt `yaml:"names" help:"most names"`
	}
	type limits struct {
		Tenants map[string]tenant `yaml:"tenants" help:"of some"`
	}
	schema := New("X", limits{})
	if keys := schema.Keys(); keys[1].Type != "int" {
		t.Errorf("got %+v", keys[1])
	}
	c, origins, err := schema.LoadText("f", []byte("tenants: {acme: {series: 5, names: 0}}"),
		func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	if text := Render(schema.Settings(c, origins)); !strings.Contains(text, "series: 5\n") ||
		!strings.Contains(text, "names: 0\n") {
		t.Errorf("%s", text)
	}
}

func TestBytes(t *testing.T) {
	for _, tt := range []struct {
		text string
		want Bytes
		back string
	}{
		{"0", 0, "0B"}, {"1", 1, "1B"}, {"4096", 4096, "4KiB"}, {"4KiB", 4096, "4KiB"}, {"1000 B", 1000, "1000B"},
		{"4MiB", 4 << 20, "4MiB"}, {"1536MiB", 1536 << 20, "1536MiB"}, {"2TiB", 2 << 40, "2TiB"}, {"5MB", 5e6, "5000000B"},
		{"9223372036854775807", math.MaxInt64, "9223372036854775807B"}, {"8388607TiB", 8388607 << 40, "8388607TiB"},
	} {
		var got Bytes
		if err := got.UnmarshalText([]byte(tt.text)); err != nil || got != tt.want {
			t.Errorf("%s: got %d, %v; want %d", tt.text, got, err, tt.want)
		}
		if back := got.String(); back != tt.back {
			t.Errorf("%s is written back as %s, want %s", tt.text, back, tt.back)
		}
	}
	for _, text := range []string{"", "MiB", "-1", "1.5GiB", "4M", "4 apples", "9223372036854775808", "8388608TiB"} {
		var got Bytes
		if err := got.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q was read as %d", text, got)
		}
	}
}

func TestNearest(t *testing.T) {
	words := []string{"udp", "width", "lateness", "data_dir", "queue"}
	for word, want := range map[string]string{
		"latenes": "lateness", "datadir": "data_dir", "data-dir": "data_dir", "Width": "width", "queues": "queue",
		"upd": "udp", "uqeue": "queue", "x": "", "": "", "retention": "",
	} {
		if got := Nearest(word, words); got != want {
			t.Errorf("%q: got %q, want %q", word, got, want)
		}
	}
}

// A file loads, or its problems are listed, one line each. If it loads, the output of Render loads
// as the same configuration.
func FuzzLoad(f *testing.F) {
	f.Add("data_dir: a\nrole: [x, y]\naggregator: {width: 1m}\nlimits: {body: 4MiB, nesting: {depth: 1}}\n")
	f.Add("rules:\n  - &a {match: m, labels: {a: b}}\n  - *a\ntenants: {acme: {series: 1}}\n")
	f.Add("a: &a [*a]\n")
	f.Add("? {a: b}\n: c\n--- !!binary\n...\n%YAML 1.1\n")
	f.Add("limits: !!null {series: 1}\nrules: !x [~, {}]\n")
	s := New("FRESHET", defaults())
	f.Fuzz(func(t *testing.T, text string) {
		none := func(string) (string, bool) { return "", false }
		cfg, from, err := s.LoadText("freshet.yaml", []byte(text), none)
		if err == nil {
			file := Render(s.Settings(cfg, from))
			again, _, err := s.LoadText("freshet.yaml", []byte(file), none)
			if err != nil || !reflect.DeepEqual(again, cfg) {
				t.Fatalf("Render wrote\n%s\nwhich loads as %+v, %v\nwant          %+v", file, again, err, cfg)
			}
			if changes := Diff(cfg, again); len(changes) > 0 {
				t.Fatalf("equal configurations differ: %v", changes)
			}
			return
		}
		var problems Problems
		if !errors.As(err, &problems) || len(problems) == 0 {
			t.Fatalf("the error is not a list of problems: %v", err)
		}
		for _, p := range problems {
			if line := p.Error(); strings.ContainsAny(line, "\n\r") || line == "" {
				t.Fatalf("a problem is empty or has several lines: %q", line)
			}
		}
	})
}

// A renamed key has no alias. If its old name is set, in any way, the problem gives the new name.
func TestRenamed(t *testing.T) {
	s := New("FRESHET", defaults()).Renamed("bounds", "limits").Renamed("aggregator.grace", "aggregator.lateness")
	_, _, err := s.LoadText("freshet.yaml", []byte("aggregator:\n  grace: 5s\nbounds:\n  body: 1MiB\n"),
		func(name string) (string, bool) {
			return "1", name == "FRESHET_BOUNDS_NESTING_DEPTH" || name == "FRESHET_AGGREGATOR_GRACE"
		})
	want := strings.Join([]string{
		"FRESHET_AGGREGATOR_GRACE: was renamed: say FRESHET_AGGREGATOR_LATENESS",
		"FRESHET_BOUNDS_NESTING_DEPTH: was renamed: say FRESHET_LIMITS_NESTING_DEPTH",
		"freshet.yaml:2: aggregator.grace: was renamed: say aggregator.lateness",
		"freshet.yaml:3: bounds: was renamed: say limits",
	}, "\n")
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	s.AddFlags(flags)
	for before, now := range map[string]string{
		"bounds-nesting-depth": "limits-nesting-depth", "aggregator-grace": "aggregator-lateness", "limits-series": "",
		"bounds": "",
	} {
		if got := RenamedFlag(flags, before); got != now {
			t.Errorf("--%s is now %q, want %q", before, got, now)
		}
	}
}
