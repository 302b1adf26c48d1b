package ledger

import "maps"

// Sum returns a tenant's books of a cluster. It adds up the figures of samples that came in at one node
// alone. Each node has a copy of what the log brought, so Sum takes these figures from one node, as
// `copied`. The result has a difference if the books of any node have one.
func Sum(nodes []Tenant, copied Samples) Tenant {
	sum := new(tenant).copy()
	s := &sum.Samples
	for i := range nodes {
		n := &nodes[i]
		s.add(&n.Samples, 1)
		s.add(&n.Copied, -1)
		sum.Datagrams.add(&n.Datagrams)
		for count, of := range n.Clients {
			if sum.Clients == nil {
				sum.Clients = map[string]float64{}
			}
			sum.Clients[count] += of
		}
	}
	s.add(&copied, 1)
	sum.Copied = copied
	return sum
}

// add adds books, or subtracts them if sign is -1. Sums of uint64 wrap around, so a subtraction may come first.
func (s *Samples) add(of *Samples, sign int64) {
	times := func(n uint64) uint64 { return n * uint64(sign) }
	s.Received += times(of.Received)
	s.Restored += times(of.Restored)
	s.Collected += times(of.Collected)
	s.HandedOver += times(of.HandedOver)
	s.Window += times(of.Window)
	s.Tile += times(of.Tile)
	s.Stored += times(of.Stored)
	s.Difference += sign * of.Difference
	to := s.Lost()
	for i, state := range of.Lost() {
		for reason, n := range state.Reasons {
			to[i].Reasons[reason] += times(n)
		}
		maps.DeleteFunc(to[i].Reasons, func(_ string, n uint64) bool { return n == 0 })
	}
	s.OfWhich.Folded += times(of.OfWhich.Folded)
	s.OfWhich.LateKept += times(of.OfWhich.LateKept)
	s.OfWhich.Ahead += times(of.OfWhich.Ahead)
	s.OfWhich.Respelled += times(of.OfWhich.Respelled)
}

func (d *DatagramBook) add(of *DatagramBook) {
	d.Received += of.Received
	d.Read += of.Read
	d.KernelDropped += of.KernelDropped
	d.Oversized += of.Oversized
	d.CutFrames += of.CutFrames
	d.RefusedConnections += of.RefusedConnections
}
