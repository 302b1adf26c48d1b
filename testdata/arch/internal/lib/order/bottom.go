package order

func bottom() int { return forgotten }

func up() *Top { return nil }

// A method may stand apart from its type, and names that are local are no arrows.
func (t *Top) apart(limit int) int {
	over := limit
	return over + t.m.n
}

func again() { _ = top().over() }
