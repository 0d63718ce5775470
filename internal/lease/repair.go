package lease
// mending is what was tried to put a fault back.
type mending struct{}
