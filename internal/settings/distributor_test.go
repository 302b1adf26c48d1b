package settings

import (
	"strings"
	"testing"

	"github.com/freshet-io/freshet/internal/core/mapping"
)

func TestDistributor(t *testing.T) {
	for why, change := range map[string]func(*Distributor){
		"rate":                     func(c *Distributor) { c.Rate = -1 },
		"max_body":                 func(c *Distributor) { c.MaxBody = 1 },
		"max_memory":               func(c *Distributor) { c.MaxMemory = 1 << 20 },
		"ha":                       func(c *Distributor) { c.HA = HA{Replica: "r"} },
		"relabel[0].action":        func(c *Distributor) { c.Relabel = []mapping.Relabel{{Action: "jump"}} },
		"tenants.../etc/something": func(c *Distributor) { c.Tenants = map[string]Override{"../etc/something": {}} },
	} {
		c := DefaultDistributor()
		if problems := c.Validate(); len(problems) > 0 {
			t.Fatal(problems)
		}
		change(&c)
		if problems := c.Validate(); len(problems) != 1 || problems[0].Key != why {
			t.Errorf("%s: got the problems %v, want one problem with this key", why, problems)
		}
	}
}

func TestOTLP(t *testing.T) {
	for _, c := range []struct {
		why    string
		change func(*OTLP)
		want   string // a part of the problem
	}{
		{"the default", func(*OTLP) {}, ""},
		{"off", func(c *OTLP) { c.GRPCListen = "" }, ""},
		{"all attributes", func(c *OTLP) { c.Promote = []string{"*"} }, ""},
		{"no port", func(c *OTLP) { c.GRPCListen = "localhost" }, "grpc_listen must be HOST:PORT"},
		{"an unknown strategy", func(c *OTLP) { c.Translation = "underscores" },
			"translation must be one of UnderscoreEscapingWithSuffixes, "},
		{"all and some", func(c *OTLP) { c.Promote = []string{"a", "*"} }, "promote_resource_attributes[1] must be"},
		{"an attribute without a name", func(c *OTLP) { c.Promote = []string{""} }, "promote_resource_attributes[0] must be"},
	} {
		config := DefaultDistributor().OTLP
		c.change(&config)
		var all []string
		for _, p := range config.Validate() {
			all = append(all, p.Key+" "+p.Text)
		}
		if text := strings.Join(all, "; "); !strings.HasPrefix(text, c.want) || (c.want == "") != (text == "") {
			t.Errorf("%s: got the problems %q, want %q", c.why, text, c.want)
		}
	}
}
