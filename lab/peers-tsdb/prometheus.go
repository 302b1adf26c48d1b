package peerstsdb

import (
	"fmt"
	"os"
	"path/filepath"
)

// prometheus is built without service discovery, since it scrapes nothing here.
var prometheus = Peer{
	Name: "Prometheus", Version: "v0.315.0", Version2: true, Native: true, Rules: true,
	folder: "prometheus", pkg: "github.com/prometheus/prometheus/cmd/prometheus",
	flags: []string{"-tags", "remove_all_sd"},
	command: func(at place) ([]string, error) {
		config := filepath.Join(at.dir, "prometheus.yml")
		settings := "storage: {tsdb: {out_of_order_time_window: 30m}}\n" // as in Freshet
		if at.rules != "" {
			settings += fmt.Sprintf("rule_files: [%q]\n", at.rules)
		}
		return []string{at.program, "--config.file=" + config, "--storage.tsdb.path=" + filepath.Join(at.dir, "data"),
				"--web.listen-address=" + at.address, "--web.enable-remote-write-receiver", "--log.level=warn"},
			os.WriteFile(config, []byte(settings), 0o600)
	},
}
