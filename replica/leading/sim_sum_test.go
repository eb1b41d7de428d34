package leading

import (
	"encoding/binary"
	"hash/maphash"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"
	"unsafe"
)

// sum gives a world a number: two worlds that can go on alike have the same one. All fields
// count, those of the Machine too, so that a field that is added to it is not forgotten; of
// times only whether what is waited for has passed, which is all that the Machine asks.
func sum(w *simWorld) uint64 {
	s := summerPool.Get().(*summer)
	s.now, s.exact, s.buf = w.now, !w.frozen, s.buf[:0]
	summing(reflect.TypeFor[simWorld]())(s, unsafe.Pointer(w))
	n := maphash.Bytes(simSeed, s.buf)
	summerPool.Put(s)
	return n
}

var (
	simSeed    = maphash.MakeSeed()
	summerPool = sync.Pool{New: func() any { return &summer{buf: make([]byte, 0, 4096)} }}
)

type summer struct {
	now   time.Time
	exact bool // frozen worlds only know whether simTick has passed since
	buf   []byte
}

func (s *summer) int(n int64) { s.buf = binary.AppendVarint(s.buf, n) }

// adding appends what is at p.
type adding func(s *summer, p unsafe.Pointer)

// summings are made once for each type.
var summings sync.Map // reflect.Type → adding

func summing(t reflect.Type) adding {
	if f, ok := summings.Load(t); ok {
		return f.(adding)
	}
	f := makeSumming(t)
	summings.Store(t, f)
	return f
}

func makeSumming(t reflect.Type) adding {
	switch t {
	case reflect.TypeFor[*simConfig](), reflect.TypeFor[simStats](), reflect.TypeFor[Config]():
		return func(*summer, unsafe.Pointer) {}
	case reflect.TypeFor[*simMeta]():
		return func(s *summer, p unsafe.Pointer) { s.meta(*(**simMeta)(p)) }
	case reflect.TypeFor[time.Time]():
		return func(s *summer, p unsafe.Pointer) { s.time(*(*time.Time)(p)) }
	case reflect.TypeFor[[]simMsg]():
		return func(s *summer, p unsafe.Pointer) { s.messages(*(*[]simMsg)(p)) }
	}
	switch t.Kind() {
	case reflect.Bool:
		return func(s *summer, p unsafe.Pointer) { s.buf = append(s.buf, *(*byte)(p)) }
	case reflect.Int8, reflect.Uint8:
		return func(s *summer, p unsafe.Pointer) { s.int(int64(*(*int8)(p))) }
	case reflect.Int16:
		return func(s *summer, p unsafe.Pointer) { s.int(int64(*(*int16)(p))) }
	case reflect.Int32:
		return func(s *summer, p unsafe.Pointer) { s.int(int64(*(*int32)(p))) }
	case reflect.Int, reflect.Int64, reflect.Uint64:
		return func(s *summer, p unsafe.Pointer) { s.int(*(*int64)(p)) }
	case reflect.String:
		return func(s *summer, p unsafe.Pointer) {
			v := *(*string)(p)
			s.int(int64(len(v)))
			s.buf = append(s.buf, v...)
		}
	case reflect.Pointer:
		return pointer(t.Elem())
	case reflect.Interface:
		return func(s *summer, p unsafe.Pointer) { s.any(reflect.NewAt(t, p).Elem().Elem()) }
	case reflect.Slice:
		return slice(t.Elem())
	case reflect.Array:
		elem, size := summing(t.Elem()), t.Elem().Size()
		return func(s *summer, p unsafe.Pointer) {
			for i := range t.Len() {
				elem(s, unsafe.Add(p, uintptr(i)*size))
			}
		}
	case reflect.Map:
		return func(s *summer, p unsafe.Pointer) { s.mapping(reflect.NewAt(t, p).Elem()) }
	case reflect.Struct:
		var fields []adding
		var offsets []uintptr
		for f := range t.Fields() {
			fields, offsets = append(fields, summing(f.Type)), append(offsets, f.Offset)
		}
		return func(s *summer, p unsafe.Pointer) {
			for i, f := range fields {
				f(s, unsafe.Add(p, offsets[i]))
			}
		}
	}
	panic("no sum of " + t.String())
}

func pointer(elem reflect.Type) adding {
	f := summing(elem)
	return func(s *summer, p unsafe.Pointer) {
		at := *(*unsafe.Pointer)(p)
		if at == nil {
			s.int(-1)
			return
		}
		f(s, at)
	}
}

func slice(elem reflect.Type) adding {
	f, size := summing(elem), elem.Size()
	return func(s *summer, p unsafe.Pointer) {
		h := (*[]byte)(p)
		s.int(int64(len(*h)))
		at := unsafe.Pointer(unsafe.SliceData(*h))
		for i := range len(*h) {
			f(s, unsafe.Add(at, uintptr(i)*size))
		}
	}
}

// any adds a value that has no address, after the name of its type.
func (s *summer) any(v reflect.Value) {
	if !v.IsValid() {
		s.int(-1)
		return
	}
	s.buf = append(s.buf, v.Type().Name()...)
	c := reflect.New(v.Type())
	c.Elem().Set(v)
	summing(v.Type())(s, c.UnsafePointer())
}

// mapping adds a map from a number.
func (s *summer) mapping(v reflect.Value) {
	s.int(int64(v.Len()))
	switch m := v.Interface().(type) {
	case map[int32]int64:
		for _, k := range slices.Sorted(maps.Keys(m)) {
			s.int(int64(k))
			s.int(m[k])
		}
	case map[int32]*follower:
		f := summing(reflect.TypeFor[follower]())
		for _, k := range slices.Sorted(maps.Keys(m)) {
			s.int(int64(k))
			f(s, unsafe.Pointer(m[k]))
		}
	default:
		elems := make(map[int64]reflect.Value, v.Len())
		for it := v.MapRange(); it.Next(); {
			elems[it.Key().Int()] = it.Value()
		}
		for _, k := range slices.Sorted(maps.Keys(elems)) {
			s.int(k)
			s.any(elems[k])
		}
	}
}

// messages are added without their order, which nothing depends on.
func (s *summer) messages(msgs []simMsg) {
	from, f := len(s.buf), summing(reflect.TypeFor[simMsg]())
	s.int(int64(len(msgs)))
	if len(msgs) == 1 {
		f(s, unsafe.Pointer(&msgs[0]))
		return
	}
	var parts []string
	for i := range msgs {
		start := len(s.buf)
		f(s, unsafe.Pointer(&msgs[i]))
		parts = append(parts, string(s.buf[start:]))
		s.buf = s.buf[:start]
	}
	slices.Sort(parts)
	s.buf = s.buf[:from]
	s.int(int64(len(parts)))
	for _, p := range parts {
		s.buf = append(s.buf, p...)
	}
}

// meta adds the sum of a view, which is made once: it is never changed.
func (s *summer) meta(m *simMeta) {
	if m == nil {
		s.int(-1)
		return
	}
	if m.sum == 0 {
		c := summer{buf: make([]byte, 0, 256)}
		summing(reflect.TypeFor[simMeta]())(&c, unsafe.Pointer(m))
		m.sum = maphash.Bytes(simSeed, c.buf) | 1
	}
	s.buf = binary.LittleEndian.AppendUint64(s.buf, m.sum)
}

func (s *summer) time(t time.Time) {
	switch {
	case s.exact: // while settling: worlds are compared for rest only
	case t.After(s.now):
		s.int(2)
	case s.now.Sub(t) >= simTick/2 && !t.IsZero():
		s.int(1)
	default:
		s.int(0)
	}
}
