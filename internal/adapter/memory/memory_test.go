//go:build linux

package memory

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// After FreeStart the program still works, and less of its file is in memory.
func TestFreeStart(t *testing.T) {
	before := residentFile(t)
	if err := FreeStart(); err != nil {
		t.Fatal(err)
	}
	after := residentFile(t)
	t.Logf("%d kB of files were resident before FreeStart, %d kB after", before, after)
	if after >= before {
		t.Errorf("%d kB of files were resident before FreeStart, %d kB after", before, after)
	}
}

// The loader of a position-independent program writes addresses into parts of it that are read-only
// afterwards.
func TestFreeStartOfAPositionIndependentProgram(t *testing.T) {
	if os.Getenv("MEMORY_TEST_POSITION_INDEPENDENT") != "" {
		return // already checked by TestFreeStart
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-buildmode=pie", "-vet=off", "-ldflags=-w", "-count=1", "-run",
		"^TestFreeStart", ".")
	cmd.Env = append(os.Environ(), "MEMORY_TEST_POSITION_INDEPENDENT=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// residentFile returns how many kB of the files that this process maps are in memory.
func residentFile(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`RssFile:\s+(\d+) kB`).FindSubmatch(text)
	if found == nil {
		t.Fatalf("/proc/self/status has no line for RssFile; its text is: %s", text)
	}
	kB, err := strconv.Atoi(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	return kB
}

// FreeStart must never drop pages that were written to, or that belong to other files.
func TestOnlyWhatIsUnchangedIsForgotten(t *testing.T) {
	const program = "/opt/my bin/freshet"
	const text = "00400000-016c1000 r-xp 00000000 fe:00 9978007                            " + program
	clean := []string{
		"Private_Clean:       8 kB", "Private_Dirty:       0 kB", "Anonymous:           0 kB", "Swap:                0 kB",
	}
	for name, c := range map[string]struct {
		mapping, figure, value string
		want                   []part
	}{
		"the program's text": {mapping: text, want: []part{{0x400000, 0x16c1000}}},
		"its variables":      {mapping: strings.Replace(text, "r-xp", "rw-p", 1)},
		"another file": {mapping: "7f2b782dd000-7f2b785fd000 r--p 00000000 fe:00 12   " +
			"/var/lib/freshet/names.db"},
		"no file":      {mapping: "02e8a000-04ee6000 r--p 00000000 00:00 0 "},
		"the kernel's": {mapping: "7ffff7fc5000-7ffff7fc9000 r--p 00000000 00:00 0   [vvar]"},
		"a file that was just written": {
			mapping: text, figure: "Private_Dirty", value: "8 kB", want: []part{{0x400000, 0x16c1000}},
		},
		"a part into which the loader wrote addresses": {mapping: text, figure: "Anonymous", value: "5696 kB"},
		"a part with swapped pages":                    {mapping: text, figure: "Swap", value: "4 kB"},
	} {
		t.Run(name, func(t *testing.T) {
			lines := []string{c.mapping}
			for _, line := range clean {
				if c.figure != "" && strings.HasPrefix(line, c.figure) {
					line = c.figure + ":      " + c.value
				}
				lines = append(lines, line)
			}
			// The lines after a mapping describe that mapping only.
			last := part{0x5000000, 0x5001000}
			lines = append(lines, "05000000-05001000 r--p 00000000 fe:00 9978007    "+program)
			lines = append(lines, clean...)
			parts, err := unchanged(strings.NewReader(strings.Join(lines, "\n")), program)
			if want := append(c.want, last); err != nil || !slices.Equal(parts, want) {
				t.Errorf("%x, %v; want %x", parts, err, want)
			}
		})
	}
	if _, err := unchanged(strings.NewReader("no map\n"), "x"); err == nil ||
		!strings.Contains(fmt.Sprint(err), "no map") {
		t.Errorf("an invalid line: %v", err)
	}
}
