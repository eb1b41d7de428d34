package leading

import (
	"encoding/binary"
	"hash/maphash"
	"maps"
	"reflect"
	"slices"
	"time"
	"unsafe"
)

// sum gives a world a number: two worlds that can go on alike have the same one. All fields
// count, those of the Machine too, so that a field that is added to it is not forgotten; of
// times only whether what is waited for has passed, which is all that the Machine asks.
func sum(w *simWorld) uint64 {
	s := summer{now: w.now, exact: !w.frozen, buf: make([]byte, 0, 2048)}
	s.value(reflect.ValueOf(w).Elem())
	return maphash.Bytes(simSeed, s.buf)
}

var simSeed = maphash.MakeSeed()

type summer struct {
	now   time.Time
	exact bool // frozen worlds only know whether simTick has passed since
	buf   []byte
}

var (
	timeType   = reflect.TypeFor[time.Time]()
	metaType   = reflect.TypeFor[*simMeta]()
	configType = reflect.TypeFor[*simConfig]()
	statsType  = reflect.TypeFor[simStats]()
	leadType   = reflect.TypeFor[Config]()
	msgsType   = reflect.TypeFor[[]simMsg]()
)

func (s *summer) int(n int64) { s.buf = binary.AppendVarint(s.buf, n) }

func (s *summer) value(v reflect.Value) {
	switch v.Type() {
	case configType, statsType, leadType:
		return
	case metaType:
		s.meta((*simMeta)(v.UnsafePointer()))
		return
	case timeType:
		s.time(*(*time.Time)(unsafe.Pointer(v.UnsafeAddr())))
		return
	case msgsType:
		s.set(v)
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		if v.Bool() {
			s.int(1)
		} else {
			s.int(0)
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		s.int(v.Int())
	case reflect.Uint64:
		s.int(int64(v.Uint()))
	case reflect.String:
		s.int(int64(v.Len()))
		s.buf = append(s.buf, v.String()...)
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			s.int(-1)
			return
		}
		e := v.Elem()
		if v.Kind() == reflect.Interface {
			s.buf = append(s.buf, e.Type().Name()...)
			c := reflect.New(e.Type()).Elem()
			c.Set(e)
			e = c
		}
		s.value(e)
	case reflect.Slice:
		s.int(int64(v.Len()))
		for i := range v.Len() {
			s.value(v.Index(i))
		}
	case reflect.Map:
		s.mapping(v)
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Field(i)
			// Unexported fields may be looked at, but not copied, which maps need.
			s.value(reflect.NewAt(f.Type(), unsafe.Pointer(f.UnsafeAddr())).Elem())
		}
	default:
		panic("no sum of " + v.Type().String())
	}
}

// mapping sums up a map from a number.
func (s *summer) mapping(v reflect.Value) {
	s.int(int64(v.Len()))
	if v.Len() == 0 {
		return
	}
	elems := make(map[int64]reflect.Value, v.Len())
	for it := v.MapRange(); it.Next(); {
		elems[it.Key().Int()] = it.Value()
	}
	for _, k := range slices.Sorted(maps.Keys(elems)) {
		s.int(k)
		e := elems[k]
		if e.Kind() == reflect.Struct || e.Kind() == reflect.Slice {
			// Elements of maps have no address.
			c := reflect.New(e.Type()).Elem()
			c.Set(e)
			e = c
		}
		s.value(e)
	}
}

// set sums up messages without their order, which nothing depends on.
func (s *summer) set(v reflect.Value) {
	from := len(s.buf)
	var parts []string
	for i := range v.Len() {
		s.value(v.Index(i))
		parts = append(parts, string(s.buf[from:]))
		s.buf = s.buf[:from]
	}
	slices.Sort(parts)
	s.int(int64(len(parts)))
	for _, p := range parts {
		s.buf = append(s.buf, p...)
	}
}

// meta sums up a view once: it is never changed.
func (s *summer) meta(m *simMeta) {
	if m == nil {
		s.int(-1)
		return
	}
	if m.sum == 0 {
		c := summer{buf: make([]byte, 0, 256)}
		c.value(reflect.ValueOf(m).Elem())
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
