package order

type middle struct{ n int }

func (m middle) over() bool {
	return m.n > limit
}
