package tile

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Each version's program wrote its state into testdata/golden, in the middle of the open tile that ends
// at 50s. From version 5 on, the state also has the closed tiles of 30s and 40s, which still wait for
// the stores. The files must not change. Every later program must read them, hand out the same samples
// as the program that wrote them, and then read the state that it writes itself.
func TestStatesOfOlderPrograms(t *testing.T) {
	for version := 1; version <= stateVersion; version++ {
		name := filepath.Join("testdata", "golden", fmt.Sprintf("version%d", version))
		state, err := os.ReadFile(name + ".state")
		if err != nil {
			t.Fatal(err)
		}
		p := &player{t: t, config: testConfig()}
		if p.shard, err = ParseState(p.config, state); err != nil || int(state[0]) != version {
			t.Fatalf("ParseState, version %d: %v, and the version in the state is %d", version, err, state[0])
		}
		var got strings.Builder
		fmt.Fprintf(&got, "%d series, %d values on the wire\n", p.shard.Len(), p.shard.Raw()["default"])
		for _, w := range p.shard.Waiting() {
			fmt.Fprintf(&got, "%v waits", time.Duration(w.Boundary-base)*time.Millisecond)
			if version > 6 {
				fmt.Fprintf(&got, ", closed at index %d", w.Index)
			}
			fmt.Fprintf(&got, "\n%s", p.describe(w, ""))
		}
		got.WriteString(p.run("live stamp=55s"))
		p.run("restart")
		p.shard.AllStored()
		for range 38 {
			fmt.Fprintf(&got, "close\n%s", p.run("close"))
			if p.shard.Closed()%70_000 == 0 {
				p.run("restart")
			}
		}
		if *update {
			if err := os.WriteFile(name+".txt", []byte(got.String()), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(name + ".txt")
		if err != nil || got.String() != string(want) {
			t.Errorf("version %d: %v, got\n%s\nwant\n%s", version, err, got.String(), want)
		}
	}
}
