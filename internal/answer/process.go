package answer

// Process is the resource use of a process: GET /api/v1/status/process. Its totals begin at the start
// of the process. Totals from the operating system include the time before a restart in place.
type Process struct {
	PID           int       `json:"pid"`
	UptimeSeconds float64   `json:"uptime_seconds"`
	Listening     Listening `json:"listening"`

	CPUUserSeconds   float64 `json:"cpu_user_seconds"`
	CPUSystemSeconds float64 `json:"cpu_system_seconds"`
	MaxResidentBytes uint64  `json:"max_resident_bytes"`
	ResidentBytes    uint64  `json:"resident_bytes"`
	Threads          int     `json:"threads"`

	HeapLiveBytes         uint64  `json:"heap_live_bytes"` // after the last garbage collection; 0 before the first
	HeapObjects           uint64  `json:"heap_objects"`
	AllocatedObjectsTotal uint64  `json:"allocated_objects_total"`
	AllocatedBytesTotal   uint64  `json:"allocated_bytes_total"`
	GCCycles              uint64  `json:"gc_cycles"`
	GCCPUSeconds          float64 `json:"gc_cpu_seconds"` // counted at the end of each collection
	Goroutines            int     `json:"goroutines"`
}
