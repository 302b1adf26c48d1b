package replica

import "github.com/freshet-io/freshet/internal/core/replica/entrylog"

// mutant has the mistakes that the simulation must find. Only a test sets it, in sim_run_test.go.
var mutant mistakes

type mistakes struct {
	sendBeforeStore  bool           // an acknowledgement or a vote is sent before its write is stored
	applyUnstored    bool           // entries are applied as soon as they come
	applyUncommitted bool           // a follower treats all entries from the leader as committed
	forgetState      bool           // term, vote and commit index are not stored
	founding         *entrylog.Base // a member with an emptied disk begins anew under its old number
	answerOldTerm    bool           // another leader's entry at a proposal's index answers the proposal
	readUnapplied    bool           // a barrier ends before its index is applied here
	removeFirst      bool           // a swap removes the old member first, and adds the new one by another change
}
