// Command monitoring writes the alerts and dashboards for Freshet: deploy/alerts.yaml for Prometheus
// and deploy/grafana/*.json for Grafana, from the lists in alerts.go and dashboards.go. Run it by
// go generate ./deploy/monitoring; a test checks that the files are up to date.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

//go:generate go run . ..

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "monitoring: give the directory that alerts.yaml and grafana/ are in")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "monitoring:", err)
		os.Exit(1)
	}
}

// write writes all files below `dir`.
func write(dir string) error {
	if err := os.MkdirAll(filepath.Join(dir, "grafana"), 0o755); err != nil {
		return err
	}
	for name, text := range files() {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// files returns the files to write, by path.
func files() map[string][]byte {
	all := map[string][]byte{"alerts.yaml": rulesFile(alerts)}
	for _, d := range dashboards() {
		all["grafana/"+d.UID+".json"] = d.grafana()
	}
	return all
}
