package peerstsdb

import "path/filepath"

// victoriaMetrics is the single-node version, built with the zstd in C that its releases
// have.
var victoriaMetrics = Peer{
	Name: "VictoriaMetrics", Version: "v1.150.0",
	folder: "victoriametrics", pkg: "github.com/VictoriaMetrics/VictoriaMetrics/app/victoria-metrics", cgo: true,
	command: func(at place) ([]string, error) {
		return []string{at.program, "-storageDataPath=" + filepath.Join(at.dir, "data"), "-httpListenAddr=" + at.address,
			"-loggerLevel=WARN"}, nil
	},
	flush: "/internal/force_flush", // else what came in the last second is not found
}
