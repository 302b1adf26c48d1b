// Package answer declares what a server tells the commands that ask it: the data of its JSON
// answers, and the small files in its data directory. Server and commands both import it, so that
// each shape is declared once. It has types and names, and computes nothing.
//
// The names of fields in JSON stay: scripts read them.
package answer

import "syscall"

// Files in the data directory by which programs find and watch a server.
const (
	DefaultDataDir  = "./data"         // default; the configuration may name another
	ListeningFile   = "listening.json" // a Listening
	RestartFile     = "restart.json"   // a Restart
	OperatorSocket  = "operator.sock"  // Unix socket for operators: a user who may open the file may operate
	PackagedDataDir = "/var/lib/freshet"
)

// These signals ask a server to reload and to restart. They must never kill it, whatever it is
// doing.
const (
	ReloadSignal  = syscall.SIGHUP
	RestartSignal = syscall.SIGUSR2
)

// Listening tells programs where a started server listens, since the kernel may have chosen
// ports. Paths are absolute, for programs that run in another directory.
type Listening struct {
	PID               int    `json:"pid"`
	Operator          string `json:"operator,omitempty"` // path of operator.sock
	HTTP              string `json:"http"`
	OTLPGRPC          string `json:"otlp_grpc,omitempty"`
	DogStatsDUDP      string `json:"dogstatsd_udp,omitempty"`
	DogStatsDUnixgram string `json:"dogstatsd_unixgram,omitempty"`
	DogStatsDUnix     string `json:"dogstatsd_unix,omitempty"`
}
