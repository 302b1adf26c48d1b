package mapping

import "github.com/freshet-io/freshet/internal/core/dogstatsd"

// Pod is what Kubernetes knows of the pod of a context.
type Pod struct {
	Name, Namespace, UID   string
	Container, ContainerID string // name and id of the container; empty if only the pod is known
	Labels                 map[string]string
}

// podLabel is a label of a pod, and its name in series.
type podLabel struct{ of, name string }

// cardinality is the size of the set of values that the labels of an origin may have, as clients choose it: those of
// a workload, also those of a pod, and also those of a container.
type cardinality int

const (
	none cardinality = iota
	low
	orchestrator
	high
)

// chosen returns the cardinality that a client wants. Unknown words change nothing.
func chosen(word []byte) cardinality {
	switch string(word) {
	case "none":
		return none
	case "low":
		return low
	case "orchestrator":
		return orchestrator
	}
	return high
}

// addOrigin adds the configured origin labels of the cardinality that the client chose. What the client says of its
// pod comes before what Kubernetes says.
func (m *Mapper) addOrigin(set labelSet, in *Input) labelSet {
	wanted := chosen(in.Origin.Cardinality)
	if !m.OriginLabels() || wanted == none {
		return set
	}
	external, pod := dogstatsd.ParseExternal(in.Origin.External), in.Pod
	if pod == nil {
		pod = &Pod{}
	}
	add := func(configured bool, of cardinality, name string, said []byte, known string) {
		if len(said) > 0 {
			known = string(said)
		}
		if configured && of <= wanted && known != "" {
			set = set.add(name, validUTF8(known))
		}
	}
	add(m.container, high, "container_id", in.Origin.Container, pod.ContainerID)
	add(m.podUID, orchestrator, "pod_uid", external.Pod, pod.UID)
	add(m.containerName, low, "container_name", external.Container, pod.Container)
	add(m.podName, orchestrator, "pod_name", nil, pod.Name)
	add(m.namespace, low, "kube_namespace", nil, pod.Namespace)
	for _, l := range m.podLabels {
		add(true, low, l.name, nil, pod.Labels[l.of])
	}
	return set
}
