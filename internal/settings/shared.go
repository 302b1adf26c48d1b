package settings

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// shared lists the sections that decide what a cluster stores and answers. The nodes of a cluster should
// agree on them. The other sections say what a process does and where it listens.
var shared = []string{"mapping", "limits", "distributor", "forward", "aggregator", "store", "events", "query", "rules"}

// Digests returns a hash of each section on which the nodes of a cluster should agree. The keys are the
// names of the sections, and each hash has 16 hexadecimal digits. Secrets, and addresses at which the
// process listens, do not count.
func (c Config) Digests() map[string]string {
	values := map[string]map[string]any{}
	for _, s := range Schema().Shown(c, nil) {
		section, _, _ := strings.Cut(s.Key, ".")
		if !slices.Contains(shared, section) || strings.HasSuffix(s.Key, "listen") {
			continue
		}
		if values[section] == nil {
			values[section] = map[string]any{}
		}
		values[section][s.Key] = s.Value
	}
	digests := map[string]string{}
	for section, of := range values {
		text, err := json.Marshal(of) // Marshal sorts the keys
		if err != nil {
			panic(fmt.Sprintf("BUG: section %s: %v", section, err))
		}
		hash := sha256.Sum256(text)
		digests[section] = hex.EncodeToString(hash[:8])
	}
	return digests
}
