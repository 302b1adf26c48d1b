package settings

// What a process can do: the key role.
const (
	RoleAll       = "all"       // every role
	RoleCollector = "collector" // reads the sockets, and has nobody to hand its windows to
)

// Stores reports whether a process keeps what it counts, and so can be asked for it.
func (c Config) Stores() bool { return c.Role == RoleAll }

// NothingStored is what people are told of a process that keeps nothing.
const NothingStored = "this process has the role collector alone, and no aggregator is named: what it counts is discarded at the end of each window"
