package main

import (
	"bytes"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// The data sources that Grafana is provisioned with.
const (
	dataUID = "freshet"      // the metrics of clients
	selfUID = "freshet-self" // Freshet's own metrics, which dashboards and alerts query
)

const (
	sourcesHeader = `# Freshet as a data source of Grafana, see docs/grafana.md: the metrics of clients, and Freshet's own metrics. For
# another machine change both addresses; for one with tokens, add the token of a tenant to the first source and
# the token of an operator to the second.
# Written by go generate ./deploy/monitoring.
`
	providerHeader = `# Freshet's dashboards, from the directory above. Grafana replaces $GF_PATHS_PROVISIONING, which must be an
# absolute path.
# Written by go generate ./deploy/monitoring.
`
	alertingHeader = `# The rules of deploy/alerts.yaml as rules of Grafana. For each alert, docs/operations.md says what to do.
# Written by go generate ./deploy/monitoring.
`
)

// provisioning returns the files of Grafana's provisioning, by path.
func provisioning() map[string][]byte {
	return map[string][]byte{
		"grafana/provisioning/datasources/freshet.yaml": inYAML(sourcesHeader, sourcesFile{1, []dataSource{
			{dataUID, "Freshet", "prometheus", "proxy", "http://127.0.0.1:7125", true, jsonData{"POST", "10s", "Prometheus"}},
			{selfUID, "Freshet itself", "prometheus", "proxy", "http://127.0.0.1:7125/self", false,
				jsonData{"POST", "5s", "Prometheus"}},
		}}),
		"grafana/provisioning/dashboards/freshet.yaml": inYAML(providerHeader, providersFile{1, []provider{
			{"Freshet", "Freshet", "file", map[string]string{"path": "$GF_PATHS_PROVISIONING/../../grafana"}},
		}}),
		"grafana/provisioning/alerting/freshet.yaml": inYAML(alertingHeader, grafanaRules(alerts)),
	}
}

type sourcesFile struct {
	APIVersion  int          `yaml:"apiVersion"`
	DataSources []dataSource `yaml:"datasources"`
}

type dataSource struct {
	UID       string   `yaml:"uid"`
	Name      string   `yaml:"name"`
	Type      string   `yaml:"type"`
	Access    string   `yaml:"access"`
	URL       string   `yaml:"url"`
	IsDefault bool     `yaml:"isDefault"`
	JSONData  jsonData `yaml:"jsonData"`
}

type jsonData struct {
	HTTPMethod     string `yaml:"httpMethod"`
	TimeInterval   string `yaml:"timeInterval"` // the distance of samples, from which $__rate_interval follows
	PrometheusType string `yaml:"prometheusType"`
}

type providersFile struct {
	APIVersion int        `yaml:"apiVersion"`
	Providers  []provider `yaml:"providers"`
}

type provider struct {
	Name    string            `yaml:"name"`
	Folder  string            `yaml:"folder"`
	Type    string            `yaml:"type"`
	Options map[string]string `yaml:"options"`
}

type alertingFile struct {
	APIVersion int          `yaml:"apiVersion"`
	Groups     []alertGroup `yaml:"groups"`
}

type alertGroup struct {
	OrgID    int           `yaml:"orgId"`
	Name     string        `yaml:"name"`
	Folder   string        `yaml:"folder"`
	Interval string        `yaml:"interval"`
	Rules    []grafanaRule `yaml:"rules"`
}

type grafanaRule struct {
	UID          string            `yaml:"uid"`
	Title        string            `yaml:"title"`
	Condition    string            `yaml:"condition"`
	Data         []ruleQuery       `yaml:"data"`
	NoDataState  string            `yaml:"noDataState"`
	ExecErrState string            `yaml:"execErrState"`
	For          string            `yaml:"for"`
	Labels       map[string]string `yaml:"labels"`
	Annotations  map[string]string `yaml:"annotations"`
}

type ruleQuery struct {
	RefID             string    `yaml:"refId"`
	RelativeTimeRange timeRange `yaml:"relativeTimeRange"`
	DatasourceUID     string    `yaml:"datasourceUid"`
	Model             object    `yaml:"model"`
}

type timeRange struct {
	From int `yaml:"from"` // seconds before now
	To   int `yaml:"to"`
}

// grafanaRules returns the alerts as rules of Grafana.
func grafanaRules(all []alert) alertingFile {
	g := alertGroup{OrgID: 1, Name: "freshet", Folder: "Freshet", Interval: "30s"}
	for _, a := range all {
		g.Rules = append(g.Rules, a.grafana())
	}
	return alertingFile{1, []alertGroup{g}}
}

// grafana returns the alert as a rule of Grafana. Grafana's rules fire for values other than 0. An expression of
// Prometheus fires for each value that it has, and the value may be 0: up == 0. So B is 1 for any value.
func (a alert) grafana() grafanaRule {
	expression := object{"type": "__expr__", "uid": "__expr__"}
	return grafanaRule{
		UID: strings.ToLower(a.Name), Title: a.Name, Condition: "C",
		Data: []ruleQuery{
			{"A", timeRange{From: 600}, selfUID, object{"refId": "A", "expr": a.Expr, "instant": true, "range": false,
				"datasource": object{"type": "prometheus", "uid": selfUID}}},
			{"B", timeRange{}, "__expr__", object{"refId": "B", "type": "math", "datasource": expression,
				"expression": "is_number($A) || is_nan($A) || is_inf($A)"}},
			{"C", timeRange{}, "__expr__", object{"refId": "C", "type": "threshold", "datasource": expression,
				"expression": "B", "conditions": []object{{"evaluator": object{"type": "gt", "params": []int{0}}}}}},
		},
		NoDataState: "OK", ExecErrState: "Error", For: orZero(a.For), Labels: map[string]string{"severity": a.Severity},
		Annotations: map[string]string{
			"summary":     strings.ReplaceAll(a.Summary, "$value", "$values.A.Value"),
			"runbook_url": runbooks + strings.ToLower(a.Name),
		},
	}
}

func orZero(duration string) string {
	if duration == "" {
		return "0s"
	}
	return duration
}

func inYAML(header string, v any) []byte {
	text := bytes.NewBufferString(header)
	e := yaml.NewEncoder(text)
	e.SetIndent(2)
	if err := e.Encode(v); err != nil {
		panic(fmt.Sprintf("BUG: %v", err))
	}
	return text.Bytes()
}
