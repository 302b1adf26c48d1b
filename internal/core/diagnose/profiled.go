package diagnose

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/google/pprof/profile"
)

// maxProfile bounds a decompressed profile, in bytes; the profile of a busy server has 1 MB.
const maxProfile = 8 << 20

// profiled is a profile: stacks and their counts. The zero value is empty.
type profiled []sampled

type sampled struct {
	stack stack
	count float64 // number of events or goroutines
	value float64 // nanoseconds or bytes; the count if the profile has no other value
	query string  // the query that the goroutine worked for, by the ID of its querycost.Row; empty for none
}

// stack has the names of functions, innermost first.
type stack []string

// readProfile decodes a profile of runtime/pprof.
func readProfile(text []byte) (profiled, error) {
	unzip, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	plain, err := io.ReadAll(io.LimitReader(unzip, maxProfile+1))
	if err != nil {
		return nil, err
	}
	if len(plain) > maxProfile {
		return nil, fmt.Errorf("has more than %d bytes", maxProfile)
	}
	p, err := profile.ParseUncompressed(plain)
	if err != nil {
		return nil, err
	}
	if err := p.CheckValid(); err != nil {
		return nil, err
	}
	if len(p.Sample) > maxStacks {
		return nil, fmt.Errorf("has more than %d stacks", maxStacks)
	}
	last := len(p.SampleType) - 1
	if last < 0 {
		return nil, fmt.Errorf("has no sample types")
	}
	// The profile allocs has four columns: two for allocated memory, then two for memory in use.
	if p.SampleType[last].Type == "inuse_space" {
		last = 1
	}
	all := make(profiled, 0, len(p.Sample))
	for _, s := range p.Sample {
		all = append(all,
			sampled{
				stack: stackOf(s), count: max(0, float64(s.Value[0])), value: max(0, float64(s.Value[last])),
				query: strings.Join(s.Label["query"], ""),
			})
	}
	return all, nil
}

const (
	// maxStack bounds how many calls of a stack are read. Our stacks have up to 60 calls.
	maxStack = 256

	// maxStacks bounds the stacks of a profile. Our profiles have some thousands.
	maxStacks = 50_000
)

func stackOf(s *profile.Sample) (names stack) {
	for _, l := range s.Location {
		for _, line := range l.Line {
			if len(names) == maxStack {
				return names
			}
			if line.Function != nil {
				names = append(names, line.Function.Name)
			}
		}
	}
	return names
}

// total returns the sum of all values.
func (p profiled) total() (sum float64) { return p.sum(func(stack) bool { return true }) }

// sum adds up the values of matching stacks.
func (p profiled) sum(match func(stack) bool) (sum float64) {
	for _, s := range p {
		if match(s.stack) {
			sum += s.value
		}
	}
	return sum
}

// counted adds up the counts of matching stacks.
func (p profiled) counted(match func(stack) bool) (sum float64) {
	for _, s := range p {
		if match(s.stack) {
			sum += s.count
		}
	}
	return sum
}

// group is a set of stacks with something in common.
type group struct {
	name         string
	value, count float64
	stack        stack   // the stack with the largest value
	most         float64 // the value of that stack
}

// groups adds up the stacks with the same key. `by` returns the key of a stack; stacks with an
// empty key are left out. The largest group comes first.
func (p profiled) groups(by func(stack) string) []*group {
	named := map[string]*group{}
	for _, s := range p {
		name := by(s.stack)
		if name == "" {
			continue
		}
		g := named[name]
		if g == nil {
			g = &group{name: name}
			named[name] = g
		}
		g.add(s)
	}
	return slices.SortedFunc(maps.Values(named), func(a, b *group) int {
		return cmp.Or(cmp.Compare(b.value, a.value), cmp.Compare(a.name, b.name))
	})
}

func (g *group) add(s sampled) {
	g.value += s.value
	g.count += s.count
	if g.stack == nil || s.value > g.most {
		g.stack, g.most = s.stack, s.value
	}
}

// shownShare is the part of the total, 0 to 1, below which a group is not shown.
const shownShare = 0.05

// largest returns up to n groups. It leaves out groups whose part of the total is too small to
// show.
func largest(groups []*group, n int, total float64) (shown []*group) {
	for _, g := range groups {
		if len(shown) == n || g.value <= 0 || g.value < shownShare*total {
			break
		}
		shown = append(shown, g)
	}
	return shown
}

// index returns the position of the first matching function in the stack, or -1.
func (s stack) index(match func(name string) bool) int { return slices.IndexFunc(s, match) }

// has(names) reports whether one of the functions is in the stack.
func (s stack) has(names ...string) bool {
	return s.index(func(name string) bool { return slices.Contains(names, name) }) >= 0
}

// in(prefixes) reports whether a function of the stack has one of the prefixes, such as a package's
// name.
func (s stack) in(prefixes ...string) bool {
	return s.index(func(name string) bool { return hasPrefix(name, prefixes...) }) >= 0
}

func hasPrefix(name string, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// Modules of functions: our own, and the TSDB that we use.
const (
	ourModule   = "github.com/freshet-io/freshet/"
	storeModule = "github.com/prometheus/prometheus/"
)

// own returns the innermost function that is ours or the TSDB's, since a person begins to read the code
// there. If there is none, it returns the innermost function outside the runtime.
func (s stack) own() string {
	if i := s.index(func(name string) bool { return hasPrefix(name, ourModule, storeModule, "main.") }); i >= 0 {
		return s[i]
	}
	if i := s.index(func(name string) bool {
		return !hasPrefix(name, "runtime.", "internal/runtime/", "sync.", "internal/sync.")
	}); i >= 0 {
		return s[i]
	}
	return ""
}

const (
	shownFrames = 12
	shownName   = 160 // bytes
)

// shown formats the stack for people: a dozen calls, without our module's path. It shows recursive
// calls as one line.
func (s stack) shown() (lines []string) {
	for i := 0; i < len(s); {
		if len(lines) == shownFrames {
			return append(lines, fmt.Sprintf("... %d more", len(s)-i))
		}
		same := i + 1
		for same < len(s) && s[same] == s[i] {
			same++
		}
		line := short(s[i])
		if same > i+1 {
			line += fmt.Sprintf(" (%d times)", same-i)
		}
		lines = append(lines, line)
		i = same
	}
	return lines
}

// short shortens a function's name: it removes the module's path and type parameters, and cuts a
// name that is still long.
func short(name string) string {
	name = strings.TrimPrefix(name, ourModule)
	if from, to := strings.IndexByte(name, '['), strings.LastIndexByte(name, ']'); from >= 0 && from < to {
		name = name[:from] + "[...]" + name[to+1:] // type parameters
	}
	name = strings.TrimPrefix(name, "github.com/prometheus/")
	if len(name) > shownName {
		name = strings.ToValidUTF8(name[:shownName], "") + "..."
	}
	return name
}

// isLock reports whether a stack waits for a mutex.
func isLock(s stack) bool {
	return s.has("sync.(*Mutex).Lock", "sync.(*RWMutex).Lock", "sync.(*RWMutex).RLock") && !s.has("sync.(*Cond).Wait")
}
