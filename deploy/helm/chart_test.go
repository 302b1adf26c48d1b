package helm

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the golden files")

const (
	chartDir  = "freshet"
	namespace = "metrics"
)

// valueSets returns the names of the sets of values in testdata.
func valueSets(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.values.yaml")
	check(t, err)
	for _, f := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(f), ".values.yaml"))
	}
	if len(names) < 6 {
		t.Fatalf("there are %d sets of values, want at least 6", len(names))
	}
	return names
}

func readValues(t *testing.T, set string) map[string]any {
	t.Helper()
	values, err := chartutil.ReadValuesFile("testdata/" + set + ".values.yaml")
	check(t, err)
	return values
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// render returns what `helm template freshet CHART --namespace metrics -f FILE` prints.
func render(c *chart.Chart, values map[string]any) ([]byte, error) {
	return renderAs("freshet", c, values)
}

// renderAs does the same for a release of another name.
func renderAs(release string, c *chart.Chart, values map[string]any) ([]byte, error) {
	files, err := renderFiles(release, c, values)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if text := strings.TrimSpace(files[name]); strings.HasSuffix(name, ".yaml") && text != "" {
			fmt.Fprintf(&out, "---\n# Source: %s\n%s\n", name, strings.TrimSpace(strings.TrimPrefix(text, "---")))
		}
	}
	return out.Bytes(), nil
}

// renderFiles returns what the chart's templates make, by their paths.
func renderFiles(release string, c *chart.Chart, values map[string]any) (map[string]string, error) {
	options := chartutil.ReleaseOptions{Name: release, Namespace: namespace, IsInstall: true, Revision: 1}
	all, err := chartutil.ToRenderValues(c, values, options, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	return engine.Render(c, all)
}

// anyImage is the value image of a chart whose image does not matter.
var anyImage = map[string]any{"repository": "registry.example.com/freshet"}

func loadChart(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.Load(chartDir)
	check(t, err)
	return c
}

// The golden files show what each set of values deploys, and what `helm install` says then. Write them anew by
// go test -C deploy/helm -update.
func TestGolden(t *testing.T) {
	c := loadChart(t)
	for _, set := range valueSets(t) {
		values := readValues(t, set)
		objects, err := render(c, values)
		if err != nil {
			t.Errorf("%s: %v", set, err)
			continue
		}
		files, err := renderFiles("freshet", c, values)
		check(t, err)
		for golden, got := range map[string]string{
			"testdata/" + set + ".golden.yaml": string(objects),
			"testdata/" + set + ".notes.txt":   strings.TrimSpace(files["freshet/templates/NOTES.txt"]) + "\n",
		} {
			if *update {
				check(t, os.WriteFile(golden, []byte(got), 0o644))
			}
			want, err := os.ReadFile(golden)
			check(t, err)
			if got != string(want) {
				t.Errorf("%s differs from %s, which go test -C deploy/helm -update writes:\n%s", set, golden,
					firstDifference(got, string(want)))
			}
		}
	}
}

// firstDifference returns the first line that differs, and its number.
func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return fmt.Sprintf("line %d: got %q, want %q", i+1, g[i], w[i])
		}
	}
	return fmt.Sprintf("got %d lines, want %d", len(g), len(w))
}

// Helm's linter finds no fault with any set of values.
func TestLint(t *testing.T) {
	for _, set := range append(valueSets(t), "") {
		values := map[string]any{}
		if set != "" {
			values = readValues(t, set)
		}
		for _, m := range lint.All(chartDir, values, namespace, true).Messages {
			if m.Severity > support.InfoSev {
				t.Errorf("%s: %v", set, m)
			}
		}
	}
}

// Each document is an object of Kubernetes or of the Prometheus operator: no field is misspelt or out of place.
func TestDocumentsAreStrict(t *testing.T) {
	c := loadChart(t)
	seen := map[string]bool{}
	for _, set := range valueSets(t) {
		text, err := render(c, readValues(t, set))
		check(t, err)
		for _, d := range documents(t, text) {
			seen[d.Kind] = true
			if _, err := d.object(); err != nil {
				t.Errorf("%s: %s %s: %v", set, d.Kind, d.Metadata.Name, err)
			}
		}
	}
	for kind := range kinds {
		if _, name, _ := strings.Cut(kind, " "); !seen[name] {
			t.Errorf("no set of values has a %s", name)
		}
	}
}

// Values that would not work are refused before anything is deployed, and the error names the value.
func TestSchemaRefuses(t *testing.T) {
	const noPods = "{mode: spoke, hub: {nodes: {a: 'b:7126'}}, collectors: {enabled: false}, gateways: {enabled: false}}"
	c := loadChart(t)
	for mistake, want := range map[string]string{
		"mode: hub":                                       "/mode",
		"mode: spoke":                                     "/hub/nodes",
		"stores: {replicas: 2}":                           "/stores/replicas",
		"stores: {replica: 3}":                            "replica",
		"stores: {storage: {size: 50 GB}}":                "/stores/storage/size",
		"stores: {drainFor: 30}":                          "/stores/drainFor",
		"config: {role: all}":                             "/config/role",
		"collectors: {hostPort: 70000}":                   "/collectors/hostPort",
		"collectors: {outboxDir: freshet}":                "/collectors/outboxDir",
		"networkPolicy: {spokes: 10.0.0.0/8}":             "/networkPolicy/spokes",
		"networkPolicy: {clients: []}":                    "/networkPolicy/clients",
		"stores: {drainFor: 0s}":                          "/stores/drainFor",
		"gateways: {shutdownDelay: 30s}":                  "/gateways/shutdownDelay",
		"fullnameOverride: Freshet":                       "/fullnameOverride",
		"stores: {resources: {limit: {memory: 1Gi}}}":     "limit",
		"stores: {extraEnv: [{value: x}]}":                "/stores/extraEnv",
		"collectors: {tolerations: [{efect: NoExecute}]}": "efect",
		"networkPolicy: {clients: [{}]}":                  "/networkPolicy/clients",
		"access: {operators: true}":                       "/access/secretName",
		"config: {http: {web_config: w.yaml}}":            "config.http.web_config",
		"stores: {config: {http: {web_config: w.yaml}}}":  "config.http.web_config",
		"stores: {config: {drain: 31s}}":                  "/stores/config/drain",
		"collectors: {outboxDir: /run/freshet}":           "collectors.outboxDir",
		"collectors: {outboxDir: /run/freshet/outbox}":    "collectors.outboxDir",
		noPods: "mode: a spoke",
	} {
		var values map[string]any
		check(t, yaml.Unmarshal([]byte(mistake), &values))
		values["image"] = anyImage
		if _, err := render(c, values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %q", mistake, err, want)
		}
	}
}

// The chart has no image of its own, since no public registry has one. What is missing is said before anything is
// deployed.
func TestImageIsNecessary(t *testing.T) {
	const want = "set image.repository"
	if _, err := render(loadChart(t), nil); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("without an image: %v, want an error with %q", err, want)
	}
}

// names fits the names of Services, which are the strictest.
var names = regexp.MustCompile(`^[a-z]([-a-z0-9]*[a-z0-9])?$`)

// However long the release's name is, no name of an object is too long, and long names that begin alike stay apart.
func TestLongNames(t *testing.T) {
	c := loadChart(t)
	long := strings.Repeat("team-of-many-words-", 3)[:52]
	seen := map[string]string{}
	for _, release := range []string{"a", "freshet-" + long[:45], long + "x", long + "y", long[:30] + "-" + long[:22]} {
		text, err := renderAs(release, c, readValues(t, "monitoring"))
		if err != nil {
			t.Errorf("%s: %v", release, err)
			continue
		}
		for _, d := range documents(t, text) {
			longest := 63
			if d.Kind == "StatefulSet" {
				longest = 52 // the label controller-revision-hash adds 11
			}
			if len(d.Metadata.Name) > longest || !names.MatchString(d.Metadata.Name) {
				t.Errorf("%s: the %s is named %s", release, d.Kind, d.Metadata.Name)
			}
			if of := d.Kind + " " + d.Metadata.Name; seen[of] != "" {
				t.Errorf("%s and %s both have the %s", seen[of], release, of)
			} else {
				seen[of] = release
			}
			for label, value := range d.Metadata.Labels {
				if len(value) > 63 {
					t.Errorf("%s: the label %s of the %s is %s", release, label, d.Metadata.Name, value)
				}
			}
		}
	}
	for _, release := range []string{"1st", "team.freshet"} {
		if _, err := renderAs(release, c, readValues(t, "cluster")); err == nil ||
			!strings.Contains(err.Error(), "fullnameOverride") {
			t.Errorf("%s: %v, want an error with fullnameOverride", release, err)
		}
	}
}

// documents returns the documents of a rendered chart.
func documents(t *testing.T, text []byte) (all []document) {
	t.Helper()
	for part := range strings.SplitSeq(string(text), "\n---\n") {
		var d document
		check(t, yaml.Unmarshal([]byte(part), &d))
		if d.Kind == "" {
			t.Fatalf("a document without a kind: %s", part)
		}
		d.text = []byte(part)
		all = append(all, d)
	}
	return all
}

var errUnknownKind = errors.New("the test knows no such kind")

// The chart has the version of the newest release in the changelog, and deploys it.
func TestVersion(t *testing.T) {
	changes, err := os.ReadFile("../../CHANGELOG.md")
	check(t, err)
	newest := regexp.MustCompile(`(?m)^## (\d+\.\d+\.\d+) `).FindSubmatch(changes)
	if c := loadChart(t).Metadata; newest == nil || c.Version != string(newest[1]) || c.AppVersion != c.Version {
		t.Errorf("the chart has version %s and deploys %s, but the newest release is %s", c.Version, c.AppVersion, newest)
	}
}
