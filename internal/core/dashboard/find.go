package dashboard

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Place is where a query stands in a dashboard.
type Place struct {
	Panel string `json:"panel"`            // its title; or the annotation, or the variable
	RefID string `json:"ref_id,omitempty"` // of the query in its panel
}

func (p Place) String() string {
	if p.RefID == "" {
		return p.Panel
	}
	return p.Panel + ", query " + p.RefID
}

// query is a string of a dashboard that holds a query.
type query struct {
	Place
	at         *value
	legend     string
	table      bool // its answer is shown as a table, which has a column for each label
	beside     bool // its panel has other queries, too
	ofVariable bool // its syntax is Grafana's own: label_values(...)
}

// shownLabel finds the labels in a legend.
var shownLabel = regexp.MustCompile(`{{\s*(\w+)\s*}}`)

// shown returns the labels that the legend names.
func (q *query) shown() (labels []string) {
	for _, found := range shownLabel.FindAllStringSubmatch(q.legend, -1) {
		labels = append(labels, found[1])
	}
	return labels
}

// shows reports whether a reader tells series apart by a label. Grafana's own legend has all labels; those that all
// series of a panel have alike tell nothing, so they may go unless there are other queries.
func (q *query) shows(label string) bool {
	if q.table || q.ofVariable {
		return true
	}
	if q.legend == "" || q.legend == "__auto" {
		return q.beside
	}
	return slices.Contains(q.shown(), label)
}

// context is what the objects around a value say about it.
type context struct {
	place      Place
	source     string // type of the data source, or ""
	ofVariable bool
}

// finder looks for queries.
type finder struct {
	sources map[string]string // types of data sources, by the variable or input that stands for one
	models  map[string]bool   // library panels that the text has
	queries []query
	notes   []Note
}

// find returns the queries of a dashboard in their order, and notes about those in another language.
func find(dashboard *value) ([]query, []Note) {
	f := &finder{sources: map[string]string{}, models: map[string]bool{}}
	f.learn(dashboard)
	f.walk(dashboard, context{})
	slices.SortFunc(f.queries, func(a, b query) int { return cmp.Compare(a.at.start, b.at.start) })
	for i := range f.queries {
		q := &f.queries[i]
		q.beside = slices.ContainsFunc(f.queries, func(other query) bool {
			return other.Panel == q.Panel && other.RefID != q.RefID
		})
	}
	return f.queries, f.notes
}

// learn collects what stands for a data source: the inputs of an export, and variables.
func (f *finder) learn(v *value) {
	switch {
	case v.textOf("pluginId") != "" && v.textOf("name") != "":
		f.sources[v.textOf("name")] = v.textOf("pluginId")
	case v.textOf("type") == "datasource" && v.textOf("name") != "" && v.textOf("query") != "":
		f.sources[v.textOf("name")] = v.textOf("query")
	case v.textOf("uid") != "" && v.get("model") != nil:
		f.models[v.textOf("uid")] = true
	}
	for _, m := range v.members {
		f.learn(m.value)
	}
}

func (f *finder) walk(v *value, in context) {
	if v.kind == object {
		in = f.enter(v, in)
		f.take(v, in)
	}
	for _, m := range v.members {
		f.walk(m.value, in)
	}
}

// enter returns the context of what is in an object.
func (f *finder) enter(v *value, in context) context {
	if title := v.get("title"); title != nil && v.get("schemaVersion") == nil && v.get("elements") == nil {
		in.place.Panel = cmp.Or(title.text, "a panel without a title")
	}
	name, kind := v.textOf("name"), v.textOf("type")
	switch {
	case v.textOf("kind") == "QueryVariable":
		in.ofVariable, in.place.Panel = true, "variable "+v.get("spec").textOf("name")
	case kind == "query" && name != "":
		in.ofVariable, in.place.Panel = true, "variable "+name
	case v.get("iconColor") != nil && name != "":
		in.place.Panel = "annotation " + name
	}
	in.place.RefID = cmp.Or(v.textOf("refId"), in.place.RefID)
	if source := v.get("datasource"); source != nil && source.kind != other {
		in.source = f.typeOf(source, in.source)
	}
	if v.textOf("kind") == "DataQuery" {
		in.source = cmp.Or(v.textOf("group"), in.source)
	}
	return in
}

// typeOf returns the type of a data source that is given by its name, or as an object. Old dashboards have the
// name alone, which does not tell the type.
func (f *finder) typeOf(source *value, outer string) string {
	name := source.text
	if source.kind == object {
		name = source.textOf("uid")
		if kind := source.textOf("type"); kind != "" && !strings.HasPrefix(kind, "$") {
			return kind
		}
	}
	if strings.HasPrefix(name, "-- ") {
		return outer // "-- Mixed --": each query names its own
	}
	return f.sources[strings.Trim(name, "${}[]")]
}

// others have queries of metrics in another language.
var others = []string{"graphite", "influxdb", "opentsdb", "grafana-datadog-datasource"}

// isPrometheus reports whether the queries of a data source are PromQL. Those of VictoriaMetrics nearly are: a query
// that only VictoriaMetrics understands gets a note when it is parsed.
func isPrometheus(source string) bool {
	return source == "" || strings.Contains(source, "prometheus") || source == "victoriametrics-datasource" ||
		source == "victoriametrics-metrics-datasource"
}

// take takes the queries that stand directly in an object.
func (f *finder) take(v *value, in context) {
	take := func(key string) {
		if at := v.get(key); at != nil && strings.TrimSpace(at.text) != "" {
			f.queries = append(f.queries, query{Place: in.place, at: at,
				legend: v.textOf("legendFormat") + v.textOf("titleFormat"), // the latter of annotations
				table:  v.textOf("format") == "table", ofVariable: in.ofVariable && key != "expr"})
		}
	}
	switch {
	case !isPrometheus(in.source):
		if v.textOf("refId") != "" && slices.Contains(others, in.source) {
			f.notes = append(f.notes, Note{in.place, cmp.Or(v.textOf("target"), v.textOf("query")),
				Reason{"is a query of " + in.source, "write it in PromQL"}})
		}
	case v.get("libraryPanel") != nil && v.get("targets") == nil && !f.models[v.get("libraryPanel").textOf("uid")]:
		f.notes = append(f.notes, Note{in.place, "", Reason{
			fmt.Sprintf("is the library panel %q, whose queries are not in the file", v.get("libraryPanel").textOf("name")),
			"export the dashboard for sharing externally, and convert that"}})
	case v.textOf("target") != "" && v.textOf("refId") != "" && v.get("expr") == nil:
		f.notes = append(f.notes, Note{in.place, v.textOf("target"),
			Reason{"is a query of Graphite, or of another data source that is not Prometheus", "write it in PromQL"}})
	case in.ofVariable:
		for _, key := range []string{"query", "definition", "expr", "__legacyStringValue"} {
			take(key)
		}
	default:
		take("expr")
	}
}
