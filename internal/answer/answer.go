// Package answer declares what a server tells the commands that ask it: the data of its JSON
// answers, and the small files in its data directory. Server and commands both import the package,
// so that each shape is declared once. It has only types and names.
//
// The names of fields in JSON never change, because scripts read them.
package answer

import "syscall"

// Programs find and watch a server by these files in its data directory.
const (
	DefaultDataDir  = "./data"         // the default; the configuration may name another directory
	ListeningFile   = "listening.json" // a Listening
	RestartFile     = "restart.json"   // a Restart
	OperatorSocket  = "operator.sock"  // Unix socket for operators: any user who may open it may operate the server
	PackagedDataDir = "/var/lib/freshet"
)

// These signals ask a server to reload and to restart. They must never kill the server, whatever it
// is doing.
const (
	ReloadSignal  = syscall.SIGHUP
	RestartSignal = syscall.SIGUSR2
)

// Listening tells programs where a started server listens, because the kernel may have chosen the
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
