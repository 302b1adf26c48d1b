package conf

import "math"

// Nearest returns the element of `words` that `word` most likely misspells, or "" if none is close.
// About one letter in three may differ.
func Nearest(word string, words []string) string {
	nearest, best := "", math.MaxInt
	for _, w := range words {
		if d := distance(word, w); d < best && d <= max(1, (max(len(word), len(w))+1)/3) {
			nearest, best = w, d
		}
	}
	return nearest
}

// distance counts the edits that turn a into b. An edit inserts, deletes or replaces a letter, or
// swaps it with the next one.
func distance(a, b string) int {
	var before []int // the previous row: distances from a[:i-1] to each b[:j]
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		next := make([]int, len(b)+1)
		next[0] = i + 1
		for j := range len(b) {
			replaced := row[j]
			if a[i] != b[j] {
				replaced++
			}
			next[j+1] = min(replaced, row[j+1]+1, next[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				next[j+1] = min(next[j+1], before[j-1]+1)
			}
		}
		before, row = row, next
	}
	return row[len(b)]
}
