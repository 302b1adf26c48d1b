package peerstsdb

import "path/filepath"

// victoriaMetrics is the single-node version, built with zstd in C, like its releases.
var victoriaMetrics = Peer{
	Name: "VictoriaMetrics", Version: "v1.150.0",
	folder: "victoriametrics", pkg: "github.com/VictoriaMetrics/VictoriaMetrics/app/victoria-metrics", cgo: true,
	command: func(at place) ([]string, error) {
		return []string{at.program, "-storageDataPath=" + filepath.Join(at.dir, "data"), "-httpListenAddr=" + at.address,
			"-loggerLevel=WARN"}, nil
	},
	flush: "/internal/force_flush", // otherwise queries miss the samples of the last second
}
