package e2e

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A node lost its directory. While the command waits that lets it join again, another node leads, which does not know
// of the command. The command tells it, and the new directory joins.
func TestAReplacementOutlivesTheLeader(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	c := startTrio(t)
	c.kill("c")
	c.dirs["c"] = dataDir(t)
	eventually(t, time.Minute, "node c counts as lost", func() error {
		_, err := c.cluster("a", "replace", "c")
		return err
	})
	waits := begin(t, t.TempDir(), exec.Command(freshet, "cluster", "replace", "c", "--wait", "--server",
		"unix:"+filepath.Join(c.dirs["a"], "operator.sock")))
	waits.says(t, "Node c may join again within 10 minutes")
	c.leadsElsewhere()
	eventually(t, time.Minute, "the command has told the new leader", func() error {
		if said := waits.output.String(); !strings.Contains(said, "leads now. Node c may join again.") {
			return fmt.Errorf("it printed %s", said)
		}
		return nil
	})
	p := c.start("c")
	eventually(t, 2*time.Minute, "node c joins", func() error {
		select {
		case <-p.exited: // on a busy machine, the leader may have changed once more
			p = c.start("c")
		default:
		}
		select {
		case <-waits.exited:
			return nil
		default:
			return errors.New("the command waits")
		}
	})
	if waits.err != nil {
		t.Errorf("the command ends with %v", waits.err)
	}
	waits.says(t, "Node c has the new directory")
	c.becomesReady("c", p)
	c.vote("a", nodeNames...)
}
