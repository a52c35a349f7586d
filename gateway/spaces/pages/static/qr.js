/**
 * A QR code (ISO/IEC 18004) as a picture, made here: what it says, as an invite's secret, goes nowhere. Bytes only, the
 * lowest level of correction, one mask: a link of random characters needs no choice.
 */

// Of versions 1 to 15, 520 bytes: codewords of correction in a block, and how many blocks.
const CORRECTION = [7, 10, 15, 20, 26, 18, 20, 24, 30, 18, 20, 24, 26, 30, 22];
const BLOCKS = [1, 1, 1, 1, 1, 2, 2, 2, 2, 4, 4, 4, 4, 4, 6];
const MASK = 3;
const isMasked = (row, column) => (row + column) % 3 === 0;
const LEVEL = 1; // the lowest, as its bits are written
const QUIET = 4; // modules around it
const SVG = "http://www.w3.org/2000/svg";

/** An SVG element, black on white whatever the page's colours are, as cameras need it. */
export function qrCode(text, title) {
  const modules = qrModules(text);
  const size = modules.length + 2 * QUIET;
  const svg = element("svg", { viewBox: `0 0 ${size} ${size}`, class: "qr", role: "img", "shape-rendering": "crispEdges" });
  const path = modules.flatMap((row, y) => row.map((isDark, x) => (isDark ? `M${x + QUIET} ${y + QUIET}h1v1h-1z` : "")));
  const name = element("title");
  name.textContent = title;
  svg.append(name, element("path", { d: `M0 0h${size}v${size}H0z`, fill: "#fff" }), element("path", { d: path.join("") }));
  return svg;
}

/** Rows of modules, true where they are dark. */
export function qrModules(text) {
  const bytes = new TextEncoder().encode(text);
  const version = BLOCKS.findIndex((_, at) => bytes.length <= dataCodewords(at + 1) - (at + 1 < 10 ? 2 : 3)) + 1;
  if (version === 0) throw new Error("The link is too long for a QR code.");
  const grid = new Grid(version);
  grid.fill(withCorrection(codewords(bytes, version), version));
  return grid.modules;
}

// ---- codewords -------------------------------------------------------------------------------------------------------

const alignments = (version) => {
  if (version === 1) return [];
  const count = Math.floor(version / 7) + 2;
  const last = 4 * version + 10;
  const step = 2 * Math.ceil((last - 6) / (2 * (count - 1)));
  return [6, ...Array.from({ length: count - 1 }, (_, at) => last - step * (count - 2 - at))];
};

/** All codewords of a version: the modules that are no pattern, by eight. */
function allCodewords(version) {
  const size = 4 * version + 17;
  const places = alignments(version).length;
  const aligned = places === 0 ? 0 : 25 * (places ** 2 - 3) - 10 * (places - 2);
  const free = size ** 2 - 3 * 64 - 2 * (size - 16) - 31 - aligned - (version < 7 ? 0 : 36);
  return Math.floor(free / 8);
}

const dataCodewords = (version) => allCodewords(version) - CORRECTION[version - 1] * BLOCKS[version - 1];

function codewords(bytes, version) {
  const bits = [];
  const put = (value, count) => {
    for (let at = count - 1; at >= 0; at--) bits.push((value >> at) & 1);
  };
  put(0b0100, 4);
  put(bytes.length, version < 10 ? 8 : 16);
  for (const byte of bytes) put(byte, 8);
  const count = dataCodewords(version);
  put(0, Math.min(4, 8 * count - bits.length));
  put(0, (8 - (bits.length % 8)) % 8);
  for (let pad = 0xec; bits.length < 8 * count; pad ^= 0xec ^ 0x11) put(pad, 8);
  return Array.from({ length: count }, (_, at) => bits.slice(8 * at, 8 * at + 8).reduce((sum, bit) => 2 * sum + bit, 0));
}

/** Blocks of data, the longer ones last, each with its correction; read in turns. */
function withCorrection(data, version) {
  const [count, length] = [BLOCKS[version - 1], CORRECTION[version - 1]];
  const short = Math.floor(data.length / count);
  const longer = data.length % count;
  const blocks = [];
  for (let at = 0, from = 0; at < count; at++) {
    const to = from + short + (at >= count - longer ? 1 : 0);
    blocks.push(data.slice(from, to));
    from = to;
  }
  const corrections = blocks.map((block) => remainder(block, length));
  const inTurns = (parts) => {
    const longest = Math.max(...parts.map((part) => part.length));
    return Array.from({ length: longest }, (_, at) => parts.map((part) => part[at])).flat().filter((word) => word !== undefined);
  };
  return [...inTurns(blocks), ...inTurns(corrections)];
}

// The field of 256 elements, by powers of its generator.
const POWERS = [1];
for (let at = 1; at < 255; at++) POWERS.push((POWERS[at - 1] << 1) ^ (POWERS[at - 1] & 0x80 ? 0x11d : 0));
const LOGS = new Map(POWERS.map((power, at) => [power, at]));
const times = (a, b) => (a === 0 || b === 0 ? 0 : POWERS[(LOGS.get(a) + LOGS.get(b)) % 255]);

/** Reed and Solomon's: what is left of the data, divided by the polynomial of this degree. */
function remainder(data, degree) {
  let divisor = [1];
  for (let at = 0; at < degree; at++) {
    const shifted = [...divisor, 0];
    divisor = shifted.map((factor, place) => factor ^ (place === 0 ? 0 : times(divisor[place - 1], POWERS[at])));
  }
  const rest = [...data, ...Array(degree).fill(0)];
  for (let at = 0; at < data.length; at++) {
    const lead = rest[at];
    divisor.forEach((factor, place) => (rest[at + place] ^= times(factor, lead)));
  }
  return rest.slice(data.length);
}

/** `value` and what is left of it, divided by `divisor` of this degree: as format and version are written. */
function checked(value, degree, divisor) {
  let rest = value << degree;
  for (let at = 31 - Math.clz32(rest); at >= degree; at = 31 - Math.clz32(rest)) {
    rest ^= divisor << (at - degree);
    if (rest === 0) break;
  }
  return (value << degree) | rest;
}

// ---- modules ---------------------------------------------------------------------------------------------------------

class Grid {
  constructor(version) {
    this.size = 4 * version + 17;
    this.modules = Array.from({ length: this.size }, () => Array(this.size).fill(null));
    for (let at = 0; at < this.size; at++) this.#set(6, at, at % 2 === 0) || this.#set(at, 6, at % 2 === 0);
    for (const [row, column] of [[3, 3], [3, this.size - 4], [this.size - 4, 3]]) this.#square(row, column, 4, [2, 4]);
    const centres = alignments(version);
    const [first, last] = [centres[0], centres.at(-1)];
    for (const row of centres) {
      for (const column of centres) {
        const isFinder = (row === first && column !== row && column === last) || (row === first && column === first) || (row === last && column === first);
        if (!isFinder) this.#square(row, column, 2, [1]);
      }
    }
    this.#format();
    if (version >= 7) this.#version(checked(version, 12, 0x1f25));
  }

  /** False, for chains. */
  #set(row, column, isDark) {
    if (row >= 0 && column >= 0 && row < this.size && column < this.size) this.modules[row][column] = isDark;
    return false;
  }

  /** Rings around a centre; those of `light` are light. */
  #square(row, column, radius, light) {
    for (let y = -radius; y <= radius; y++) {
      for (let x = -radius; x <= radius; x++) {
        this.#set(row + y, column + x, !light.includes(Math.max(Math.abs(x), Math.abs(y))));
      }
    }
  }

  #format() {
    const bits = checked((LEVEL << 3) | MASK, 10, 0x537) ^ 0x5412;
    const { size } = this;
    for (let at = 0; at < 15; at++) {
      const isDark = ((bits >> at) & 1) === 1;
      const near = at < 6 ? at : at < 8 ? at + 1 : size - 15 + at;
      this.#set(near, 8, isDark);
      this.#set(8, at < 8 ? size - 1 - at : at === 8 ? 7 : 14 - at, isDark);
    }
    this.#set(size - 8, 8, true);
  }

  #version(bits) {
    for (let at = 0; at < 18; at++) {
      const isDark = ((bits >> at) & 1) === 1;
      const [near, far] = [Math.floor(at / 3), this.size - 11 + (at % 3)];
      this.#set(near, far, isDark);
      this.#set(far, near, isDark);
    }
  }

  /** Two columns at a time from the right, up and down in turns, where no pattern is. */
  fill(words) {
    let at = 0;
    let isUp = true;
    for (let right = this.size - 1; right > 0; right -= 2) {
      if (right === 6) right = 5; // a column of the timing pattern
      for (let step = 0; step < this.size; step++) {
        const row = isUp ? this.size - 1 - step : step;
        for (const column of [right, right - 1]) {
          if (this.modules[row][column] !== null) continue;
          const bit = ((words[at >> 3] ?? 0) >> (7 - (at & 7))) & 1;
          at += 1;
          this.modules[row][column] = (bit === 1) !== isMasked(row, column);
        }
      }
      isUp = !isUp;
    }
  }
}

function element(tag, attributes = {}) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}
