package rewrite

// Sized makes a Rewriter whose bodies have a target and a largest size in bytes.
func Sized(target, most int) *Rewriter { return &Rewriter{target: target, most: most} }
