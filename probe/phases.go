package probe

// Phases times the parts of a call one after the other. The zero value counts no turns.
type Phases struct {
	// Socket, when set, says how many turns each part took.
	Socket *Socket

	list  []Phase
	began int64
	turns int
	open  bool
}

// Begin ends the part under way and begins another one.
func (p *Phases) Begin(name string) { p.BeginAt(name, Now()) }

// BeginAt is Begin at a time that was taken before, on the clock of Now.
func (p *Phases) BeginAt(name string, now int64) {
	p.EndAt(now)
	p.list = append(p.list, Phase{Name: name})
	p.began, p.open = now, true
	if p.Socket != nil {
		p.turns = p.Socket.Turns()
	}
}

// EndAt ends the part under way, if there is one; the next Begin may come later.
func (p *Phases) EndAt(now int64) {
	if !p.open {
		return
	}
	p.open = false
	last := &p.list[len(p.list)-1]
	last.NS = now - p.began
	if p.Socket != nil {
		last.Turns = p.Socket.Turns() - p.turns
	}
}

// Add enters a part that somebody else timed.
func (p *Phases) Add(name string, ns int64) { p.list = append(p.list, Phase{Name: name, NS: ns}) }

// End ends the call and gives its parts.
func (p *Phases) End(now int64) []Phase {
	p.EndAt(now)
	return p.list
}
