package ruler

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/prometheus/rules"

	"github.com/freshet-io/freshet/internal/core/rulestate"
	"github.com/freshet-io/freshet/internal/core/watermark"
)

// States keep what rules need to go on in another process.
type States interface {
	Load(tenant string) (groups []rulestate.Group, senders []byte, err error)
	Save(tenant string, c rulestate.Changes) error
}

// keeper saves the states of a tenant's groups and senders soon after they change. A process that dies
// loses the changes of the last moment. The next one evaluates these slots again, with the same results,
// since slots, states and data are the same.
type keeper struct {
	tenant  string
	states  States
	senders *watermark.Tenant
	logger  *slog.Logger

	saving  sync.Mutex // held while states are written, so that older ones never replace newer ones
	failing bool       // the last write failed

	mu      sync.Mutex
	changed map[rulestate.Key]rulestate.Group
	gone    map[rulestate.Key]bool
}

const (
	// saveEvery is how often states are saved. Each time costs a sync of the disk.
	saveEvery = time.Second

	// sendersEvery is how many times states are saved until senders are, too. There may be many.
	sendersEvery = 5
)

func newKeeper(tenant string, states States, senders *watermark.Tenant, logger *slog.Logger) *keeper {
	return &keeper{tenant: tenant, states: states, senders: senders, logger: logger,
		changed: map[rulestate.Key]rulestate.Group{}, gone: map[rulestate.Key]bool{}}
}

// note notes the state of a group after the evaluation of a slot.
func (k *keeper) note(group *rules.Group, slot time.Time) {
	state := stateOf(group, slot)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.changed[state.Key()] = state
	delete(k.gone, state.Key())
}

// forget notes that a group is gone.
func (k *keeper) forget(key rulestate.Key) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.gone[key] = true
	delete(k.changed, key)
}

// run saves what changes until ctx is done.
func (k *keeper) run(ctx context.Context) {
	ticker := time.NewTicker(saveEvery)
	defer ticker.Stop()
	for n := 1; ; n++ {
		select {
		case <-ticker.C:
			k.save(n%sendersEvery == 0)
		case <-ctx.Done():
			return
		}
	}
}

// save saves what changed. What cannot be saved is saved the next time.
func (k *keeper) save(senders bool) {
	k.saving.Lock()
	defer k.saving.Unlock()
	k.mu.Lock()
	changed, gone := k.changed, k.gone
	k.changed, k.gone = map[rulestate.Key]rulestate.Group{}, map[rulestate.Key]bool{}
	k.mu.Unlock()
	var c rulestate.Changes
	for _, g := range changed {
		c.Groups = append(c.Groups, g)
	}
	for key := range gone {
		c.Gone = append(c.Gone, key)
	}
	if senders {
		c.Senders = k.senders.AppendTo(nil, time.Now().UnixMilli())
	}
	if len(c.Groups)+len(c.Gone) == 0 && c.Senders == nil {
		return
	}
	err := k.states.Save(k.tenant, c)
	k.told(err)
	if err == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for key, g := range changed {
		if _, newer := k.changed[key]; !newer && !k.gone[key] {
			k.changed[key] = g
		}
	}
	for key := range gone {
		if _, again := k.changed[key]; !again {
			k.gone[key] = true
		}
	}
}

// told logs the first of several failures.
func (k *keeper) told(err error) {
	if err != nil && !k.failing {
		k.logger.Error("the states of rules cannot be saved: after a restart, alerts go on from the states saved before",
			"error", err)
	}
	k.failing = err != nil
}

// stateOf returns the state of a group after the evaluation of a slot.
func stateOf(group *rules.Group, slot time.Time) rulestate.Group {
	g := rulestate.Group{File: group.File(), Name: group.Name(), Interval: group.Interval(), Slot: slot}
	for rule, r := range identified(group) {
		rule.ForEachActiveAlert(func(a *rules.Alert) { r.Alerts = append(r.Alerts, savedAlert(a)) })
		if len(r.Alerts) > 0 {
			g.Rules = append(g.Rules, r)
		}
	}
	return g
}
