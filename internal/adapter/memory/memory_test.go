//go:build linux

package memory

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A program goes on as before, with less of its file in memory.
func TestFreeStart(t *testing.T) {
	before := residentFile(t)
	if err := FreeStart(); err != nil {
		t.Fatal(err)
	}
	after := residentFile(t)
	t.Logf("%d kB of files are resident, and were %d", after, before)
	if after >= before {
		t.Errorf("%d kB of files are resident, and were %d", after, before)
	}
}

// residentFile is how much of the files that this process maps is in memory, in kB.
func residentFile(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`RssFile:\s+(\d+) kB`).FindSubmatch(text)
	if found == nil {
		t.Fatalf("the kernel does not say what is resident: %s", text)
	}
	kB, err := strconv.Atoi(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	return kB
}

// What was written to, or belongs to others, must never be forgotten.
func TestOnlyWhatCannotChangeIsForgotten(t *testing.T) {
	const maps = `00400000-016c1000 r-xp 00000000 fe:00 9978007                            /opt/my bin/freshet
016c1000-02dc8000 r--p 012c1000 fe:00 9978007                            /opt/my bin/freshet
02dc8000-02e8a000 rw-p 029c8000 fe:00 9978007                            /opt/my bin/freshet
02e8a000-04ee6000 rw-p 00000000 00:00 0 
7f2b782dd000-7f2b785fd000 r--p 00000000 fe:00 12                         /var/lib/freshet/names.db
7ffff7fc5000-7ffff7fc9000 r--p 00000000 00:00 0                          [vvar]
`
	parts, err := unchanging(strings.NewReader(maps), "/opt/my bin/freshet")
	if want := []part{{0x400000, 0x16c1000}, {0x16c1000, 0x2dc8000}}; err != nil || !slices.Equal(parts, want) {
		t.Errorf("%x, %v; want %x", parts, err, want)
	}
	if _, err := unchanging(strings.NewReader("no map\n"), "x"); err == nil || !strings.Contains(fmt.Sprint(err), "no map") {
		t.Errorf("a line that is none: %v", err)
	}
}
