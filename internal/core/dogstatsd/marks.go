package dogstatsd

// slack is how many bytes the parser may read beyond a datagram: the rest of the datagram's last
// block, and one more block.
const slack = 2 * blockSize

// InPlace reports whether Reset reads a datagram in place. If not, Reset copies the datagram, and
// metrics that point into the copy are valid until the next copy.
func InPlace(packet []byte) bool { return !marking || cap(packet)-len(packet) >= slack }

// markAll finds the marks of the present datagram.
func (p *Parser) markAll() {
	n := p.end/blockSize + 1 // in blocks; the last block has the byte after the datagram
	if InPlace(p.packet) {
		p.packet = p.packet[:p.end+slack]
	} else {
		if len(p.copied) < p.end+slack {
			p.copied = make([]byte, p.end+slack)
		}
		copy(p.copied, p.packet)
		p.packet = p.copied
	}
	if len(p.marks) <= n {
		p.marks = make([]marks, n+1)
	}
	markBlocks(p.packet[:n*blockSize], p.marks)
	// The end of the datagram ends a line, as a line break does. Bytes after it mean nothing.
	end := uint64(1) << (p.end % blockSize)
	last := &p.marks[n-1]
	last.ends = last.ends&(end-1) | end
	last.colons &= end - 1
	p.marks[n] = marks{} // view may read this element
}

// view returns the marks of the 64 bytes from `at` on. `at` is inside the datagram or just after it.
func (p *Parser) view(at int) (ends, colons uint64) {
	i, bit := uint(at)/blockSize, uint(at)%blockSize
	next := p.marks[i+1]
	this := p.marks[i]
	return this.ends>>bit | next.ends<<1<<(63-bit), this.colons>>bit | next.colons<<1<<(63-bit)
}
