package strictyaml

// Near is the one of some names that was probably meant; empty where none is near, or
// several are. It is for messages: nothing is taken for something else.
func Near(name string, names []string) string {
	best, found := len(name)/3+1, ""
	for _, n := range names {
		switch d := distance(name, n); {
		case d < best:
			best, found = d, n
		case d == best && d <= len(name)/3:
			found = ""
		}
	}
	return found
}

// distance is how many letters must be put in, taken out, replaced or exchanged with their
// neighbour to make b of a (the restricted Damerau-Levenshtein distance).
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(last[j+1]+1, row[j]+1, last[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
