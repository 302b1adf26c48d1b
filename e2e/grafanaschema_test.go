package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/alerting"
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/expr"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
	"go.yaml.in/yaml/v3"
)

// TestGrafanasSchema holds the dashboards and the alert rules of deploy/grafana against the types that Grafana
// publishes: each field must be known, of its type, and there if it is required, also those of the kinds of panels and
// queries in use.
func TestGrafanasSchema(t *testing.T) {
	t.Parallel()
	registerGrafanasKinds()
	files, err := filepath.Glob("../deploy/grafana/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := fits(text); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		var d struct{ Panels []struct{ Type string } }
		if err := json.Unmarshal(text, &d); err != nil {
			t.Fatal(err)
		}
		for _, p := range d.Panels {
			if p.Type != timeseries.VariantConfig().Identifier && p.Type != "row" {
				t.Errorf("%s: no schema is registered for panels of the type %s", file, p.Type)
			}
		}
		mistaken := strings.Replace(string(text), `"showPoints"`, `"showPoint"`, 1)
		if err := fits([]byte(mistaken)); err == nil || !strings.Contains(err.Error(), "showPoint") {
			t.Errorf("%s: of an option that does not exist, the types say %v", file, err)
		}
	}

	text, err := os.ReadFile("../deploy/grafana/provisioning/alerting/freshet.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var provisioned struct {
		Groups []struct {
			Name, Folder string
			Rules        []map[string]any
		}
	}
	if err := yaml.Unmarshal(text, &provisioned); err != nil {
		t.Fatal(err)
	}
	if len(provisioned.Groups) == 0 || len(provisioned.Groups[0].Rules) < 40 {
		t.Fatalf("the file has %d groups", len(provisioned.Groups))
	}
	for _, g := range provisioned.Groups {
		for _, r := range g.Rules {
			// The published type is of the API, which names the group in each rule.
			r["orgID"], r["folderUID"], r["ruleGroup"] = 1, g.Folder, g.Name
			text, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			var rule alerting.Rule
			if err := problems(rule.UnmarshalJSONStrict(text), rule.Validate()); err != nil {
				t.Errorf("%s: %v", r["title"], err)
			}
			mistaken := strings.Replace(string(text), `"expr":`, `"exp":`, 1)
			if err := problems(new(alerting.Rule).UnmarshalJSONStrict([]byte(mistaken))); err == nil {
				t.Errorf("%s: a mistake in a query is not found", r["title"])
			}
		}
	}
}

// A converted dashboard fits Grafana's published types as well as the one that it was made of.
func TestAConvertedDashboardFitsGrafanasSchema(t *testing.T) {
	t.Parallel()
	registerGrafanasKinds()
	const dir = "../internal/core/dashboard/testdata/"
	before, err := os.ReadFile(dir + "export.json")
	if err != nil {
		t.Fatal(err)
	}
	after, err := os.ReadFile(dir + "export.freshet.json")
	if err != nil {
		t.Fatal(err)
	}
	was, is := strings.Split(fmt.Sprint(fits(before)), "\n"), strings.Split(fmt.Sprint(fits(after)), "\n")
	slices.Sort(was)
	slices.Sort(is)
	if !slices.Equal(was, is) {
		t.Errorf("before:\n%q\nafter:\n%q", was, is)
	}
}

// registerGrafanasKinds registers the kinds of panels and queries that deploy/grafana uses.
var registerGrafanasKinds = sync.OnceFunc(func() {
	kinds := cog.NewRuntime() // there is one
	kinds.RegisterPanelcfgVariant(timeseries.VariantConfig())
	kinds.RegisterDataqueryVariant(prometheus.VariantConfig())
	kinds.RegisterDataqueryVariant(expr.VariantConfig())
})

// problems joins errors of Grafana's package, which returns empty lists of errors where it found none.
func problems(found ...error) error {
	return errors.Join(slices.DeleteFunc(found, func(err error) bool {
		list, isList := err.(cog.BuildErrors)
		return isList && len(list) == 0
	})...)
}

// fits returns what Grafana's types find wrong in a dashboard.
func fits(text []byte) error {
	//lint:ignore SA1019 deploy/grafana is of this schema, the one that all versions of Grafana read
	var d dashboard.Dashboard
	return problems(d.UnmarshalJSONStrict(text), d.Validate())
}
