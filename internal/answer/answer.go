// Package answer declares what a server answers to commands: the data of its JSON answers, and the
// small files in its data directory. Server and commands both import the package, so that each
// shape is declared once. It has only types and names.
//
// The names of fields in JSON never change, because scripts read them.
//
// The files, from the top; each uses only names of files below it:
//
//	ledger.go    the books of a tenant
//	rules.go     what rules wait for
//	cluster.go   the nodes of a cluster
//	top.go       the busiest metrics and senders
//	senders.go   who sends
//	queries.go   what queries cost
//	tail.go      lines as they arrive
//	explain.go   the fate of a datagram's lines
//	event.go     events
//	process.go   the costs of the process
//	snapshot.go  snapshots
//	history.go   imported blocks
//	restart.go   a restart in place
//	answer.go    files in the data directory
package answer

import (
	"fmt"
	"syscall"

	"github.com/freshet-io/freshet/internal/core/tenant"
	"github.com/freshet-io/freshet/internal/lib/conf"
)

// Files in the data directory of a server, by which programs find and watch the server.
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

// Listening lists the addresses at which a server listens, since the kernel may have chosen the
// ports. Paths are absolute, so that programs in another directory can use them.
type Listening struct {
	PID               int    `json:"pid"`
	Operator          string `json:"operator,omitempty"` // path of operator.sock
	HTTP              string `json:"http"`
	OTLPGRPC          string `json:"otlp_grpc,omitempty"`
	DogStatsDUDP      string `json:"dogstatsd_udp,omitempty"`
	DogStatsDUnixgram string `json:"dogstatsd_unixgram,omitempty"`
	DogStatsDUnix     string `json:"dogstatsd_unix,omitempty"`
}

// Difference says what a configuration file would change: POST /api/v1/status/diff.
type Difference struct {
	Changes  []conf.Change `json:"changes"`
	Rules    []RuleChange  `json:"rules"`    // in the rule files that the file names; a reload applies them
	Problems []string      `json:"problems"` // problems of the files; if there are any, nothing else is there
}

// RuleChange is a group of rules that a reload adds, removes or changes.
type RuleChange struct {
	Tenant string `json:"tenant"`
	File   string `json:"file"`
	Group  string `json:"group"`
	Change string `json:"change"` // added, removed or changed
}

// String names the file, the group, a tenant other than the default one, and the change.
func (c RuleChange) String() string {
	of := ""
	if c.Tenant != tenant.Default {
		of = " of tenant " + c.Tenant
	}
	return fmt.Sprintf("%s: group %s%s: %s", c.File, c.Group, of, c.Change)
}
