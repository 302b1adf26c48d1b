package order

// Top uses what stands below it.
type Top struct{ m middle }

const limit = 1

func top() middle { return middle{bottom()} }
