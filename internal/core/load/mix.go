package load

import (
	"fmt"
	"strconv"
	"strings"
)

// Kind is a type that a metric line can declare, and an index of Mix.
type Kind uint8

const (
	Counter Kind = iota
	Gauge
	Timer
	Histogram
	Distribution
	Set
	NumKinds
)

var kindNames = [NumKinds]string{"c", "g", "ms", "h", "d", "s"}

// String returns the kind's spelling in a line.
func (k Kind) String() string { return kindNames[k] }

// Mix is the weight of each kind.
type Mix [NumKinds]int

// ParseMix reads "c:50,g:20,ms:15,h:5,d:5,s:5"; a kind without a number weighs 1.
func ParseMix(text string) (m Mix, err error) {
	for part := range strings.SplitSeq(text, ",") {
		name, weight, weighted := strings.Cut(part, ":")
		n := 1
		if weighted {
			n, err = strconv.Atoi(weight)
		}
		k := kindOf(name)
		if err != nil || n < 0 || n > 1_000_000 || k == NumKinds {
			return Mix{}, fmt.Errorf("%q: is not a kind with its weight; write a mix such as c:50,g:20,ms:15,h:5,d:5,s:5", part)
		}
		m[k] += n
	}
	if m.total() == 0 {
		return Mix{}, fmt.Errorf("%q: give at least one kind a weight above 0", text)
	}
	return m, nil
}

func kindOf(name string) Kind {
	for k, known := range kindNames {
		if name == known {
			return Kind(k)
		}
	}
	return NumKinds
}

// String returns the mix in the form that ParseMix reads.
func (m Mix) String() string {
	var parts []string
	for k, weight := range m {
		if weight > 0 {
			parts = append(parts, fmt.Sprintf("%v:%d", Kind(k), weight))
		}
	}
	return strings.Join(parts, ",")
}

func (m Mix) total() (sum int) {
	for _, weight := range m {
		sum += weight
	}
	return sum
}

// at returns the kind of the i-th of n things that are distributed by weight.
func (m Mix) at(i, n int) Kind {
	sum, total := 0, m.total()
	for k, weight := range m {
		sum += weight
		if i < (n*sum+total/2)/total {
			return Kind(k)
		}
	}
	panic(fmt.Sprintf("BUG: no kind for %d of %d by %v", i, n, m))
}
