package settings

import (
	"testing"
)

func TestRecorder(t *testing.T) {
	if problems := DefaultRecorder().Validate(); len(problems) != 0 {
		t.Error(problems)
	}
	if problems := (Recorder{}).Validate(); len(problems) != 3 {
		t.Error(problems)
	}
}
