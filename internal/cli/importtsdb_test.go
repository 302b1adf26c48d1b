package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/internal/adapter/blocks"
)

// Thanos' compactor writes a block of 5 m and one of 1 h beside that of raw samples, and its retention may delete the
// raw one first. The import said that it left downsampled blocks out, and not whose samples it has nowhere else.
func TestDownsampledBlocks(t *testing.T) {
	const early, late = `"minTime":1793836800000,"maxTime":1795046100001`, `"minTime":1795046400000,"maxTime":1795218900001`
	const raw, aggregates = "01JDRSYX5Z8V3M1E0Q6W2T4N7A", "01JDRSYX5Z8V3M1E0Q6W2T4N7"
	write := func(dir, id, times string, resolution int) {
		t.Helper()
		text := fmt.Sprintf(`{"ulid":%q,%s,"version":1,"thanos":{"labels":{"cluster":"eu"},"source":"compactor",`+
			`"downsample":{"resolution":%d},"index_stats":{}}}`, id, times, resolution)
		if err := os.MkdirAll(filepath.Join(dir, id), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, id, blocks.MetaFile), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	all, part := t.TempDir(), t.TempDir()
	for _, dir := range []string{all, part} {
		write(dir, raw, late, 0)
		write(dir, aggregates+"B", late, 300_000)
	}
	write(part, aggregates+"C", early, 300_000)
	write(part, aggregates+"D", early, 3_600_000)
	const lost = "no other block has samples of 2026-11-05 00:00 to 2026-11-18 23:55, which stay in Thanos"
	for _, c := range []struct {
		name, dir string
		skip      bool
		err, note string
		loses     bool
	}{
		{"refused", all, false, "1 block downsampled by Thanos", "", false},
		{"refused, and some are of a time of their own", part, false, "3 blocks downsampled by Thanos", "", true},
		{"left out", all, true, "", "note: 1 block left out, since Thanos downsampled them: ", false},
		{"left out, and some are of a time of their own", part, true, "",
			"note: 3 blocks left out, since Thanos downsampled them: ", true},
	} {
		var notes strings.Builder
		i := importTSDB{skipDownsampled: c.skip, notes: &notes}
		found, err := i.find(t.Context(), blockDir(c.dir))
		told := notes.String()
		if err != nil {
			told += err.Error()
		}
		if (err != nil) != (c.err != "") || !strings.Contains(told, c.err) || !strings.Contains(told, c.note) ||
			strings.Contains(told, lost) != c.loses || strings.Contains(told, "stay in Thanos") != c.loses {
			t.Errorf("%s: the command said %q", c.name, told)
		}
		if c.skip && (len(found) != 1 || found[0].ID.String() != raw) {
			t.Errorf("%s: imports %v", c.name, found)
		}
	}
}
