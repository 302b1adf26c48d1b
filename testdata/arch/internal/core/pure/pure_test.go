package pure

import (
	"os"
	"testing"
	"time"
)

func TestMayDoWhatItLikes(t *testing.T) {
	_, _ = os.Getwd()
	_ = time.Now()
}
