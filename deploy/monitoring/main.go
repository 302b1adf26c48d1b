// Command monitoring writes the alerts and dashboards for Freshet: deploy/alerts.yaml for Prometheus, and for
// Grafana deploy/grafana/*.json and the files in deploy/grafana/provisioning, from the lists in alerts.go and
// dashboards.go. go generate ./deploy/monitoring runs it. A test checks that the files are up to date.
package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
)

//go:generate go run . ..

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "monitoring: give one argument, the directory for alerts.yaml and grafana/")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "monitoring:", err)
		os.Exit(1)
	}
}

// write writes all files below `dir`.
func write(dir string) error {
	for name, text := range files() {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// files returns the contents of the files to write, by path. A chart has only files below its own directory, so the
// alerts are there once more.
func files() map[string][]byte {
	rules := rulesFile(alerts)
	all := map[string][]byte{"alerts.yaml": rules, "helm/freshet/files/alerts.yaml": rules}
	for _, d := range dashboards() {
		all["grafana/"+d.UID+".json"] = d.grafana()
	}
	maps.Copy(all, provisioning())
	return all
}
