package conf

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestDiff(t *testing.T) {
	some := `
rules:
- {match: a}
- {match: b, drop: [x]}
- {match: c, labels: {team: web, tier: "1"}}
tenants: {acme: {series: 1}, zed: {series: 2}}
`
	for _, tt := range []struct {
		name, old, new string
		want           []string
	}{
		{"nothing", some, "# the same\n" + some, nil},
		{
			"values, in the order of the keys, with what takes a restart", "",
			"limits: {body: 8MiB}\nrole: [a, b]\ndata_dir: \"\"\naggregator: {width: 1m}",
			[]string{
				`data_dir: ./data -> "" (restart)`, "role: [all] -> [a, b]", "aggregator.width: 10s -> 1m (restart)",
				"limits.body: 4MiB -> 8MiB",
			},
		},
		{
			"an element's keys", some,
			strings.NewReplacer("match: b, drop: [x]", "match: B", `tier: "1"`, "town: x").Replace(some),
			[]string{
				"rules[1].match: b -> B", "rules[1].drop: removed [x]", `rules[2].labels.tier: removed "1"`,
				"rules[2].labels.town: added x",
			},
		},
		{"an element at the end", some, strings.Replace(some, "tenants", "- {match: d}\ntenants", 1),
			[]string{"rules[3]: added {match: d}"}},
		{"an element in front moves the others, which is not a change",
			some, strings.Replace(some, "rules:", "rules:\n- {match: z}", 1), []string{"rules[0]: added {match: z}"}},
		{"one removed from the middle", some, strings.Replace(some, "- {match: b, drop: [x]}\n", "", 1),
			[]string{"rules[1]: removed {match: b, drop: [x]}"}},
		{"all of them", some, "", []string{
			"rules[0]: removed {match: a}", "rules[1]: removed {match: b, drop: [x]}",
			`rules[2]: removed {match: c, labels: {team: web, tier: "1"}}`,
			"tenants.acme: removed {series: 1}", "tenants.zed: removed {series: 2}",
		}},
		{"a map", some,
			strings.NewReplacer("acme: {series: 1}", "bar: {}", "zed: {series: 2}", "zed: {series: 3}").Replace(some), []string{
				"tenants.acme: removed {series: 1}", "tenants.bar: added {}", "tenants.zed.series: 2 -> 3",
			}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			read := func(text string) config {
				c, err := load(t, text, nil, nil)
				if err != nil {
					t.Fatal(err)
				}
				return c
			}
			var got []string
			for _, c := range Diff(read(tt.old), read(tt.new)) {
				line := c.String()
				if c.Restart {
					line += " (restart)"
				}
				got = append(got, line)
			}
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
			}
		})
	}
}

// After a reload, keys that need a restart have their old values, and all others have new values.
func TestReloaded(t *testing.T) {
	next := defaults()
	next.DataDir, next.Aggregator.Width = "elsewhere", time.Hour
	next.Limits.Series, next.Rules = 5, []rule{{Match: "a"}}
	got := Reloaded(defaults(), next)
	want := defaults()
	want.Limits.Series, want.Rules = 5, []rule{{Match: "a"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	for _, c := range Diff(got, next) {
		if !c.Restart {
			t.Errorf("after the reload %s still differs, although it needs no restart", c)
		}
	}
}
