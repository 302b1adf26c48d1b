package buf

import "testing"

// had is a helper that returns a buffer which does not come from the pool.
func had(bytes []byte) *Buf {
	b := &Buf{B: bytes}
	b.owned.Store(true)
	return b
}

func TestWhatIsGivenBackIsUsedAgain(t *testing.T) {
	b := Get()
	b.B = append(b.B, "bytes"...)
	view := b.B
	b.Release()
	if Poisoned && string(view) != "\xdb\xdb\xdb\xdb\xdb" {
		t.Errorf("after Release the buffer holds %q, want poison", view)
	}
	if b := Get(); len(b.B) != 0 {
		t.Errorf("a new buffer has %d bytes, want 0", len(b.B))
	}
}

func TestReleasedTwice(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("the second Release did not panic")
		}
	}()
	b := had(nil)
	b.Release()
	b.Release()
}

func TestLongBuffersGo(t *testing.T) {
	b := had(make([]byte, maxKept+1))
	b.Release()
	if cap(b.B) != 0 {
		t.Errorf("%d bytes are kept", cap(b.B))
	}
}
