package pagefault

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// mapped returns the map of a file that is shorter than its map: reading it faults as a bad sector does.
func mapped(t *testing.T) []byte {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "x"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(4096); err != nil {
		t.Fatal(err)
	}
	b, err := syscall.Mmap(int(f.Fd()), 0, 4096, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Munmap(b) })
	if err := f.Truncate(0); err != nil {
		t.Fatal(err)
	}
	return b
}

func TestGuard(t *testing.T) {
	b, sum := mapped(t), 0
	err := Guard(func() error { sum += int(b[7]); return nil })
	if _, fault := errors.AsType[*Error](err); !fault {
		t.Errorf("a fault is the error %v", err)
	}
	if err := Guard(func() error { return os.ErrExist }); err != os.ErrExist {
		t.Errorf("an error becomes %v", err)
	}
	if err := Guard(func() error { return nil }); err != nil {
		t.Errorf("no error becomes %v", err)
	}
}

// A bug is not taken for a bad disk.
func TestGuardLetsOtherPanicsPass(t *testing.T) {
	var nowhere *struct{ field int }
	for what, read := range map[string]func() error{
		"a nil pointer": func() error { nowhere.field++; return nil },
		"a bug":         func() error { panic("BUG") },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: the panic was recovered", what)
				}
			}()
			_ = Guard(read)
		}()
	}
}
