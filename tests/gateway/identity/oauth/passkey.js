/** In the place of the passkeys' own module. */
export const signIn = async () => ({ id: "ada" });
export const forgetUnknown = async () => undefined;
